//! The `try` face: what the manual and the tests of binpash/try say of it, one check each.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::harness::{Done, Job, Scene, as_everyone, has};

/// `try` with these arguments, called through a link of that name; its own directories go to the scene.
fn try_with<'s>(scene: &'s Scene, arguments: &[&str]) -> Job<'s> {
    let link = scene.dir().join("try");
    if !link.is_symlink() {
        symlink(scene.program(), &link).expect("a link");
    }
    scene
        .bare(&[&link])
        .args(arguments)
        .env("TMPDIR", scene.make_dir("tmp"))
        .env("SHELL", "/bin/sh")
}

/// A fresh sandbox directory of the user's.
fn sandbox(scene: &Scene, name: &str) -> String {
    scene.make_dir(name).display().to_string()
}

/// A path as it stands in `upperdir`.
fn upper(sandbox: &str, path: &Path) -> PathBuf {
    Path::new(sandbox)
        .join("upperdir")
        .join(path.strip_prefix("/").expect("an absolute path"))
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|stat| stat.file_type().is_char_device())
}

/// The lines of a summary, with the working directory left out.
fn lines(scene: &Scene, done: &Done) -> Vec<String> {
    let work = format!("{}/", scene.work().display());
    done.text()
        .lines()
        .map(|line| line.replace(&work, ""))
        .collect()
}

/// What stands in a file of the working directory; nothing where there is none.
fn content(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.work().join(name)).unwrap_or_default()
}

fn exists(scene: &Scene, name: &str) -> bool {
    scene.work().join(name).symlink_metadata().is_ok()
}

/// Names in the scene's temporary directory that are try's.
fn temporaries(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.dir().join("tmp")).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let suffix = name.rsplit_once(".try-").map(|(_, number)| number);
            suffix.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .collect()
}

as_everyone! {
    fn nothing_real_changes_until_yes(scene: &Scene) {
        scene.sh("echo old >f").run().must_succeed();
        let script = "echo new >f; touch g";
        let done = try_with(scene, &[script]).input(b"n\n").run().must_succeed();
        assert!(done.stderr.contains("\nChanges detected in the following files:\n\n") && done.stderr.ends_with("Not committing.\n"), "{done}");
        assert!(done.stderr.contains("\nCommit these changes? [y/i/N] "), "{done}");
        assert_eq!(content(scene, "f"), "old\n");
        assert!(!exists(scene, "g"));
        // The sandbox is there, and its name on standard output.
        let kept = done.text().trim_end().to_owned();
        assert_eq!(fs::read(upper(&kept, &scene.work().join("f"))).expect("the file"), b"new\n");
        for no in [b"".as_slice(), b"\n", b"no\n", b"yy\n"] {
            try_with(scene, &[script]).input(no).run().must_succeed().must_say(&["Not committing."]);
            assert_eq!(content(scene, "f"), "old\n");
        }
        for yes in [b"y\n".as_slice(), b"Y", b"yes\n", b"YES\n"] {
            scene.sh("echo old >f; rm -f g").run().must_succeed();
            let done = try_with(scene, &[script]).input(yes).run().must_succeed();
            assert_eq!((content(scene, "f").as_str(), exists(scene, "g"), done.text().as_str()), ("new\n", true, ""), "{done}");
        }
    }

    fn without_changes_nothing_is_said_or_kept(scene: &Scene) {
        let done = try_with(scene, &["echo hi"]).input(b"y\n").run().must_succeed();
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("hi\n", ""));
        assert_eq!(temporaries(scene).len(), 0);
        assert_eq!(scene.effigy(&["ls"]).run().text(), "");
    }

    fn the_exit_status_is_the_commands(scene: &Scene) {
        try_with(scene, &["exit", "3"]).run().must_exit(3);
        try_with(scene, &["-y", "touch f; exit 4"]).run().must_exit(4);
        assert!(exists(scene, "f"), "yes to all prompts, whatever the command says");
        try_with(scene, &["-n", "touch g; exit 5"]).run().must_exit(5);
        try_with(scene, &["-n", "-t", "log", "exit 6"]).run().must_exit(6);
        try_with(scene, &["no-such-command"]).run().must_exit(127);
        try_with(scene, &["kill -9 $$"]).run().must_exit(137);
        try_with(scene, &["touch h; exit 7"]).input(b"n\n").run().must_exit(7);
    }

    fn yes_commits_and_no_prints_the_directory(scene: &Scene) {
        let done = try_with(scene, &["-y", "echo x >f"]).run().must_succeed();
        assert_eq!((content(scene, "f").as_str(), done.text().as_str()), ("x\n", ""));
        let done = try_with(scene, &["-n", "echo y >f"]).run().must_succeed();
        assert_eq!(content(scene, "f"), "x\n");
        let dir = done.text().trim_end().to_owned();
        assert_eq!(temporaries(scene), [PathBuf::from(&dir)], "one new directory, named as try names them");
        assert_eq!(fs::metadata(&dir).expect("a directory").permissions().mode() & 0o777, 0o700);
        // It is printed though nothing changed.
        assert!(Path::new(try_with(scene, &["-n", "true"]).run().text().trim_end()).join("upperdir").is_dir());
    }

    fn the_last_of_yes_and_no_counts(scene: &Scene) {
        assert_ne!(try_with(scene, &["-y", "-n", "touch f"]).run().must_succeed().text(), "");
        assert!(!exists(scene, "f"));
        assert_ne!(try_with(scene, &["-yn", "touch f"]).run().must_succeed().text(), "");
        assert!(!exists(scene, "f"));
        assert_eq!(try_with(scene, &["-ny", "touch f"]).run().must_succeed().text(), "");
        assert!(exists(scene, "f"));
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-y", "-N", &dir, "touch g"]).run().must_succeed();
        assert!(!exists(scene, "g"));
        try_with(scene, &["-N", &dir, "-y", "touch h"]).run().must_succeed();
        assert!(exists(scene, "g") && exists(scene, "h"));
    }

    fn a_sandbox_is_listed_and_committed(scene: &Scene) {
        scene.sh("echo fail >file_2; touch target gone").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        let script = "touch file_1; echo test >file_2; rm gone target; mkdir target; mkdir -p new/nested; ln -s x link; mkfifo pipe";
        let done = try_with(scene, &["-N", &dir, script]).run().must_succeed();
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("", ""), "-N says nothing");
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        let expected = [
            "", "Changes detected in the following files:", "",
            "file_1 (added)", "file_2 (modified)", "gone (deleted)", "link (symlink)", "new (created dir)", "new/nested (created dir)",
            "pipe (added)", "target (replaced with dir)",
        ];
        assert_eq!(lines(scene, &listed), expected);
        assert_eq!(content(scene, "file_2"), "fail\n");
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "file_1\nfile_2\nlink\nnew\npipe\ntarget\n");
        assert_eq!(content(scene, "file_2"), "test\n");
        assert!(scene.work().join("target").is_dir() && Path::new(&dir).is_dir());
        // Nothing is left to list.
        let done = try_with(scene, &["summary", &dir]).run().must_exit(1);
        assert_eq!(done.text(), "");
    }

    fn an_empty_summary_is_no(scene: &Scene) {
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "--", "echo hi"]).run().must_succeed();
        assert_eq!(try_with(scene, &["summary", &dir]).run().must_exit(1).text(), "");
    }

    fn upperdir_has_the_shape_of_the_root(scene: &Scene) {
        scene.sh("mkdir old; touch old/inner; echo x >gone; echo v1 >f").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "rm -r old gone; mkdir old; echo v2 >f; mkdir -m 0 locked; ln -s /etc link; ln f hard; mkdir -p a/b; echo c >a/b/c"]).run().must_succeed();
        let at = |name: &str| upper(&dir, &scene.work().join(name));
        assert_eq!(fs::read(at("f")).expect("a file"), b"v2\n");
        assert_eq!(fs::read(at("a/b/c")).expect("a file"), b"c\n");
        assert_eq!(fs::read_link(at("link")).expect("a link"), Path::new("/etc"));
        assert!(is_whiteout(&at("gone")) && at("old").is_dir() && at("locked").is_dir() && at("hard").is_file());
        for part in ["upperdir/usr", "upperdir/etc", "workdir", "temproot/etc"] {
            assert!(Path::new(&dir).join(part).is_dir(), "{part}");
        }
        // It is a view: the files keep the names that the command gave them, and committing moves them.
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(scene.sh("stat -c %h f hard a/b/c").run().text(), "2\n2\n1\n");
        assert!(!at("f").exists());
    }

    fn a_sandbox_elsewhere_shows_the_same(scene: &Scene) {
        // On another filesystem than the store.
        let dir = format!("/dev/shm/effigy-try.{}.{}", std::process::id(), scene.uid());
        fs::create_dir(&dir).expect("a directory");
        scene.give(Path::new(&dir));
        let done = try_with(scene, &["-N", &dir, "echo x >f"]).run();
        let read = fs::read(upper(&dir, &scene.work().join("f")));
        let committed = try_with(scene, &["commit", &dir]).run();
        fs::remove_dir_all(&dir).expect("it goes");
        done.must_succeed();
        committed.must_succeed();
        assert_eq!(read.expect("a file"), b"x\n");
        assert_eq!(content(scene, "f"), "x\n");
    }

    fn a_sandbox_is_used_again(scene: &Scene) {
        scene.sh("echo gz >file.gz; mkdir d; touch d/real").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "touch file_1; echo test >file_2; rm file.gz; rm -r d; mkdir d; echo 1 >d/one"]).run().must_succeed();
        let done = try_with(scene, &["-N", &dir, "cat file_2; ls d; rm file_1; echo test2 >>file_2; touch file.gz; echo 2 >d/two"]).run().must_succeed();
        assert_eq!(done.text(), "test\none\n");
        try_with(scene, &["-N", &dir, "echo test3 >>file_2; touch d/real; rm d/real"]).run().must_succeed();
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["d/one (added)", "d/real (deleted)", "d/two (added)", "file.gz (modified)", "file_2 (added)"]);
        let file = upper(&dir, &scene.work().join("file_2"));
        assert_eq!(fs::read_to_string(file).expect("a file"), "test\ntest2\ntest3\n");
        // It is one session, whose journal goes on.
        assert_eq!(scene.effigy(&["ls", "--json"]).run().text().lines().count(), 1);
        let log = scene.effigy(&["log", "--op", "unlink"]).run().must_succeed().text();
        assert!(log.contains("file.gz") && log.contains("file_1") && log.contains("d/real"), "{log}");
        // Of which -t tells the part of this run.
        try_with(scene, &["-N", &dir, "-t", "log", "touch d/three"]).run().must_succeed();
        let log = content(scene, "log");
        assert!(log.contains("d/three") && !log.contains("file_1"), "{log}");
        try_with(scene, &["-N", &dir, "rm d/three"]).run().must_succeed();
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(content(scene, "file_2"), "test\ntest2\ntest3\n");
        assert_eq!((content(scene, "file.gz").as_str(), exists(scene, "file_1")), ("", false));
        assert_eq!(scene.sh("ls d").run().text(), "one\ntwo\n");
        // And once more after the commit.
        try_with(scene, &["-N", &dir, "echo test4 >>file_2"]).run().must_succeed();
        assert_eq!(content(scene, "file_2"), "test\ntest2\ntest3\n");
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(content(scene, "file_2"), "test\ntest2\ntest3\ntest4\n");
    }

    fn what_was_deleted_is_made_again_in_a_sandbox(scene: &Scene) {
        let dir = sandbox(scene, "sandbox");
        let file = scene.work().join("f");
        try_with(scene, &["-N", &dir, "echo first >f; mkdir e; touch e/x"]).run().must_succeed();
        try_with(scene, &["-N", &dir, "rm f; rm -r e"]).run().must_succeed();
        assert!(!upper(&dir, &file).is_file());
        try_with(scene, &["summary", &dir]).run().must_exit(1);
        try_with(scene, &["-N", &dir, "ls; echo second >f"]).run().must_succeed();
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!((content(scene, "f").as_str(), exists(scene, "e")), ("second\n", false));
    }

    fn lower_sandboxes_are_merged(scene: &Scene) {
        scene.sh("echo gz >file.gz").run().must_succeed();
        let [one, two, three] = ["one", "two", "three"].map(|name| sandbox(scene, name));
        try_with(scene, &["-N", &one, "touch file_1; echo test >file_2; rm file.gz"]).run().must_succeed();
        try_with(scene, &["-N", &two, "echo test2 >file_2"]).run().must_succeed();
        try_with(scene, &["-N", &three, "echo test3 >file_3"]).run().must_succeed();
        let stack = format!("{three}:{two}:{one}");
        // The leftmost counts, and only what this run itself did is committed.
        let script = "cat file_1 >out1; cat file_2 >out2; cat file_3 >out3; ls file.gz >out4 2>/dev/null || :";
        let done = try_with(scene, &["-L", &stack, "-y", script]).run().must_succeed();
        assert_eq!(done.text(), "");
        assert_eq!(["out1", "out2", "out3", "out4"].map(|name| content(scene, name)), ["", "test2\n", "test3\n", ""]);
        assert!(exists(scene, "file.gz") && !exists(scene, "file_2"));
        // -L alone keeps, and says nothing.
        let done = try_with(scene, &["-L", &stack, "echo more >>file_2"]).run().must_succeed();
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("", ""));
        try_with(scene, &["-L", &one, "-L", &two, "true"]).run().must_exit(2).must_say(&["try: the -L option has been specified multiple times"]);
        try_with(scene, &["-L", &scene.make_dir("none").display().to_string(), "true"]).run().must_exit(1).must_say(&["could not find directory"]);
    }

    fn lower_sandboxes_are_brought_together(scene: &Scene) {
        scene.sh("echo gz >file.gz; mkdir d; echo real >d/real").run().must_succeed();
        let [one, two, all] = ["one", "two", "all"].map(|name| sandbox(scene, name));
        try_with(scene, &["-N", &one, "echo 1 >a; echo 1 >b; rm file.gz; rm -r d; mkdir d; echo 1 >d/x"]).run().must_succeed();
        try_with(scene, &["-N", &two, "echo 2 >b; echo 2 >d/y"]).run().must_succeed();
        try_with(scene, &["-N", &all, "-L", &format!("{two}:{one}")]).run().must_succeed();
        let listed = try_with(scene, &["summary", &all]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["a (added)", "b (added)", "d/real (deleted)", "d/x (added)", "d/y (added)", "file.gz (deleted)"]);
        try_with(scene, &["commit", &all]).run().must_succeed();
        assert_eq!(scene.sh("cat a b; ls d").run().text(), "1\n2\nx\ny\n");
        assert!(!exists(scene, "file.gz"));
        // What was brought together is still where it was: one's own b, say, which is not the one that was committed.
        let listed = try_with(scene, &["summary", &one]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["b (modified)", "d/y (deleted)"]);
        assert_eq!(fs::read(upper(&one, &scene.work().join("b"))).expect("a file"), b"1\n");
    }

    fn patterns_include_and_exclude(scene: &Scene) {
        let script = "touch foo1.txt foo2.txt bar.txt";
        let clear = || scene.sh("rm -f *.txt").run().must_succeed();
        try_with(scene, &["-y", "-I", "foo1", "-I", "foo2", script]).run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "foo1.txt\nfoo2.txt\n");
        clear();
        try_with(scene, &["-y", "-E", "foo1", "-E", "foo2", script]).run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "bar.txt\n");
        clear();
        // Both; and grep's own meaning of signs, of line ends, and of a pattern that looks like an option.
        try_with(scene, &["-y", "-I", "foo[0-9]\\.txt$", "-E", "2\\.txt$", script]).run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "foo1.txt\n");
        clear();
        try_with(scene, &["-y", "-E", "-x.txt", "touch ./-x.txt y.txt; mkdir -p d/e; touch d/e/f-x.txt d/e/g"]).run().must_succeed();
        assert_eq!(scene.sh("find . -type f | sort").run().text(), "./d/e/g\n./y.txt\n");
        // A subcommand takes them too, and what was left out stays.
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo a >a; echo b >b"]).run().must_succeed();
        let listed = try_with(scene, &["-I", "/a$", "summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["a (added)"]);
        try_with(scene, &["-E", "/a$", "commit", &dir]).run().must_succeed();
        assert_eq!((content(scene, "a").as_str(), content(scene, "b").as_str()), ("", "b\n"));
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["a (added)"]);
        try_with(scene, &["-I", "nothing-like-this", "summary", &dir]).run().must_exit(1);
        try_with(scene, &["-I", "\\(", "summary", &dir]).run().must_exit(2);
    }

    fn effects_are_chosen_in_an_editor(scene: &Scene) {
        let editor = scene.dir().join("editor");
        fs::write(&editor, "#!/bin/sh\nnew=$2.new\ngrep -v \"$1\" \"$2\" >\"$new\"; mv \"$new\" \"$2\"\n").expect("an editor");
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).expect("executable");
        let editor = |without: &str| format!("{} {without}", editor.display());
        let script = "echo keep >keep.txt; echo skip >skip.txt; echo x >keep_txt";
        try_with(scene, &[script]).env("EDITOR", editor("/skip\\.txt")).input(b"i\n").run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "keep.txt\nkeep_txt\n");
        scene.sh("rm *").run().must_succeed();
        // A line is a path and no pattern.
        try_with(scene, &[script]).env("EDITOR", editor("'skip\\|keep_'")).input(b"I\n").run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "keep.txt\n");
        scene.sh("rm *").run().must_succeed();
        for (nothing, why) in [(editor("."), "all lines are gone"), ("false".to_owned(), "the editor failed")] {
            let done = try_with(scene, &[script]).env("EDITOR", &nothing).input(b"i\n").run().must_say(&["Not committing."]);
            assert!(Path::new(done.text().trim_end()).is_dir(), "{why}: {done}");
            assert_eq!(scene.sh("ls").run().text(), "", "{why}");
        }
    }

    fn what_is_hidden_does_not_exist(scene: &Scene) {
        scene.sh("mkdir visible hidden; touch visible/f hidden_f hidden/f").run().must_succeed();
        let test = "test ! -e hidden_f && test ! -e hidden && test -e visible/f";
        try_with(scene, &["-y", "-i", "hidden_f", "-i", "hidden", "-i", "missing", test]).run().must_succeed();
        assert_eq!(scene.sh("ls -R | grep -c .").run().text(), "8\n", "nothing real has gone");
        try_with(scene, &["-i", "/", "true"]).run().must_exit(2).must_say(&["try: cannot hide /"]);
    }

    fn a_used_sandbox_hides_too(scene: &Scene) {
        scene.sh("echo 1 >f; echo 1 >g; mkdir d; echo 1 >d/h").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo 2 >f; rm g; echo 2 >d/h; touch new"]).run().must_succeed();
        try_with(scene, &["-N", &dir, "-i", "f", "-i", "d", "test ! -e f && test ! -e d && test -e new && echo 3 >new"]).run().must_succeed();
        assert_eq!(scene.effigy(&["ls", "--json"]).run().text().lines().count(), 1, "it has taken the place of the former");
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["d/h (modified)", "f (modified)", "g (deleted)", "new (added)"]);
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(scene.sh("cat f d/h new; ls").run().text(), "2\n2\n3\nd\nf\nnew\n");
    }

    fn a_sandbox_left_half_way_is_finished(scene: &Scene) {
        scene.sh("echo 1 >f").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo 2 >f; mkdir d; echo a >d/a; echo b >d/b"]).run().must_succeed();
        // As it is when try was killed when it had just begun to bring the two sessions together.
        let former = fs::read_link(Path::new(&dir).join("session")).expect("a link");
        let id = former.file_name().and_then(|id| id.to_str()).expect("an id");
        scene.effigy(&["run", "-n", "-s", "newer", "--on", id, "--", "sh", "-c", "echo 3 >>f; rm d/a; echo c >d/c"]).run().must_succeed();
        let listed = scene.effigy(&["ls", "--json"]).run().text();
        let newer = listed.lines().find(|line| line.contains("\"newer\"")).expect("the session");
        let newer = newer.split('"').skip_while(|word| *word != "id").nth(2).expect("its id");
        let link = |name: &str, id: &str| {
            let link = Path::new(&dir).join(name);
            let _none = fs::remove_file(&link);
            symlink(former.with_file_name(id), &link).expect("a link");
        };
        link("before", id);
        link("session", newer);
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["d (created dir)", "d/b (added)", "d/c (added)", "f (modified)"]);
        assert!(!former.exists() && !Path::new(&dir).join("before").is_symlink());
        try_with(scene, &["commit", &dir]).run().must_succeed();
        assert_eq!(scene.sh("cat f; ls d").run().text(), "2\n3\nb\nc\n");
    }

    fn the_trace_is_a_log_and_two_lists(scene: &Scene) {
        scene.sh("echo in >in; mkdir d").run().must_succeed();
        let done = try_with(scene, &["-y", "-t", "log", "cat in; echo traced >traced; mv traced d/moved; cat missing"]).run();
        done.must_exit(1);
        let log = content(scene, "log");
        let (log, lists) = log.split_once("\n#reads\n").expect("the lists");
        let (reads, writes) = lists.split_once("#writes\n").expect("what was written");
        let at = |name: &str| scene.work().join(name).display().to_string();
        let order = ["traced (created)", "traced -> d/moved"].map(|event| log.find(event).unwrap_or_else(|| panic!("{event}: {log}")));
        assert!(order[0] < order[1], "{log}");
        let has = |list: &str, name: &str| list.lines().any(|line| line == at(name));
        assert!(has(reads, "in") && has(reads, "missing") && !has(reads, "traced"), "{reads}");
        assert!(has(writes, "traced") && has(writes, "d/moved") && !has(writes, "in"), "{writes}");
        assert!(content(scene, "d/moved") == "traced\n");
        try_with(scene, &["-n", "-t", "no/such/place", "true"]).run().must_exit(1).must_say(&["no/such/place"]);
    }

    fn the_shell_is_the_users_choice(scene: &Scene) {
        if !has(scene, "bash") {
            return;
        }
        let script = "basename $(readlink /proc/$$/exe); echo $TRY_SHELL";
        let shell = |try_shell: &str, shell: &str| try_with(scene, &[script]).env("TRY_SHELL", try_shell).env("SHELL", shell).run().must_succeed().text();
        let sh = scene.sh("basename $(readlink -f /bin/sh)").run().text();
        assert_eq!(shell("/bin/bash", "/bin/sh"), "bash\n/bin/bash\n");
        assert_eq!(shell("", "/bin/bash"), "bash\n/bin/bash\n");
        assert_eq!(shell("/no/such/shell", "/bin/sh"), format!("{sh}/bin/sh\n"));
        assert_ne!(shell("", "/no/such/shell"), "", "the login shell, or sh");
        let substitution = try_with(scene, &["diff <(echo alpha) <(echo alpha)"]).env("TRY_SHELL", "/bin/bash");
        substitution.run().must_succeed();
    }

    fn arguments_are_joined_and_stay_apart(scene: &Scene) {
        let words = |arguments: &[&str]| try_with(scene, arguments).run().must_succeed().text();
        assert_eq!(words(&["printf", "%s\\n", "hello world", "it's ok", ""]), "hello world\nit's ok\n\n");
        assert_eq!(words(&["echo test | tr t T"]), "TesT\n");
        assert_eq!(words(&["echo", "test", "|", "tr", "t", "T"]), "TesT\n");
        assert_eq!(words(&["sh", "-c", "echo \"$0 $1\"", "a  b", "c"]), "a  b c\n");
        assert_eq!(words(&["A=1", "sh", "-c", "echo $A"]), "1\n");
        assert_eq!(words(&["--", "echo", "-n"]), "");
        assert_eq!(words(&["echo ${SANDBOX_DIR-no sandbox}"]), "no sandbox\n");
        try_with(scene, &["-y", "echo", "hi", ">", "a b"]).run().must_succeed();
        assert_eq!(content(scene, "a b"), "hi\n");
        scene.sh("printf 'mypwd=$(pwd)\necho \"$mypwd\"\n' >script").run().must_succeed();
        assert_eq!(words(&["sh", "script"]).trim_end(), scene.work().display().to_string());
    }

    fn every_kind_replaces_every_other(scene: &Scene) {
        let makers = [
            ("file", "echo new >x", "test -f x && test \"$(cat x)\" = new"),
            ("dir", "mkdir x; echo fresh >x/new", "test -d x && test ! -e x/old && test \"$(cat x/new)\" = fresh"),
            ("symlink", "ln -s /this/is/broken x", "test \"$(readlink x)\" = /this/is/broken"),
            ("fifo", "mkfifo x", "test -p x"),
            ("nothing", ":", "test ! -e x && test ! -L x"),
        ];
        let before = ["echo old >x", "mkdir -p x/inner; touch x/old x/inner/y", "ln -s / x", "mkfifo x", ":"];
        for setup in before {
            for (kind, make, check) in makers {
                scene.sh(&format!("rm -rf x; {setup}")).run().must_succeed();
                try_with(scene, &["-y", &format!("rm -rf x; {make}")]).run().must_succeed();
                let checked = scene.bare(&["sh", "-c", check]).run();
                assert_eq!(checked.status, 0, "{kind} after {setup}: {checked}");
            }
        }
    }

    fn odd_names_are_listed_on_one_line(scene: &Scene) {
        scene.sh("touch \"$(printf 'this\\nis bad')\"").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "rm \"$(printf 'this\\nis bad')\""]).run().must_succeed();
        let listed = try_with(scene, &["summary", &dir]).run().must_succeed();
        assert_eq!(lines(scene, &listed)[3..], ["this\\nis bad (deleted)"]);
        try_with(scene, &["-I", "bad$", "commit", &dir]).run().must_succeed();
        assert_eq!(scene.sh("ls").run().text(), "");
    }

    fn what_does_not_exist_is_refused(scene: &Scene) {
        for arguments in [["-N", "nowhere", "true"], ["-D", "nowhere", "true"]] {
            try_with(scene, &arguments).run().must_exit(2).must_say(&["try: could not find sandbox directory 'nowhere'"]);
        }
        for command in ["summary", "commit"] {
            try_with(scene, &[command, "nowhere"]).run().must_exit(2).must_say(&["try: could not find directory nowhere"]);
            try_with(scene, &[command]).run().must_exit(2).must_say(&["try: could not find directory"]);
        }
        try_with(scene, &["explore", "nowhere"]).run().must_exit(2).must_say(&["try: could not find sandbox directory nowhere"]);
        let empty = sandbox(scene, "empty");
        try_with(scene, &["summary", &empty]).run().must_exit(1).must_say(&[&format!("try: could not find directory {empty}/upperdir")]);
        try_with(scene, &["-U", "nowhere", "true"]).run().must_exit(2).must_say(&["try: could not find executable union helper 'nowhere'"]);
        try_with(scene, &["-U", "/bin/sh", "true"]).run().must_succeed();
    }

    fn a_sandbox_that_is_not_one_is_refused(scene: &Scene) {
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo x >f"]).run().must_succeed();
        fs::write(Path::new(&dir).join("temproot/etc/foo"), "").expect("a file");
        try_with(scene, &["-N", &dir, "true"]).run().must_exit(1).must_say(&[&format!("try: given sandbox '{dir}' is invalid")]);
        // Another try's, which has no session.
        let other = sandbox(scene, "other");
        for part in ["other/upperdir/etc", "other/workdir", "other/temproot"] {
            scene.make_dir(part);
        }
        try_with(scene, &["-N", &other, "true"]).run().must_exit(1).must_say(&["is invalid"]);
        for command in ["summary", "commit"] {
            try_with(scene, &[command, &other]).run().must_exit(1).must_say(&["another try made it"]);
        }
        // One whose session was discarded, and one that names what is no session.
        let lost = sandbox(scene, "lost");
        try_with(scene, &["-N", &lost, "echo x >f"]).run().must_succeed();
        scene.effigy(&["discard", "--all", "-y"]).run().must_succeed();
        try_with(scene, &["commit", &lost]).run().must_exit(1).must_say(&["is gone"]);
        fs::remove_file(Path::new(&lost).join("session")).expect("the link");
        symlink("/etc", Path::new(&lost).join("session")).expect("a link");
        try_with(scene, &["commit", &lost]).run().must_exit(1).must_say(&["is gone"]);
    }

    fn a_conflict_changes_nothing(scene: &Scene) {
        scene.sh("echo old >f").run().must_succeed();
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo new >f; echo g >g"]).run().must_succeed();
        scene.sh("sleep 0.02; echo mine >f").run().must_succeed();
        try_with(scene, &["commit", &dir]).run().must_exit(1).must_say(&["try: couldn't commit", "work/f"]);
        assert_eq!((content(scene, "f").as_str(), exists(scene, "g")), ("mine\n", false));
        // The rest can still be committed.
        try_with(scene, &["-E", "/f$", "commit", &dir]).run().must_succeed();
        assert_eq!((content(scene, "f").as_str(), content(scene, "g").as_str()), ("mine\n", "g\n"));
    }

    fn the_usage_is_told_on_standard_error(scene: &Scene) {
        for (arguments, status) in [(vec!["-h"], 0), (vec!["--help"], 0), (vec!["-Z"], 0), (vec!["-E"], 0), (vec![], 2), (vec!["-n"], 2)] {
            let done = try_with(scene, &arguments).run().must_exit(status);
            assert!(done.stderr.starts_with("Usage: try ") && done.stderr.contains("--help") && done.text().is_empty(), "{done}");
        }
        let done = try_with(scene, &["-v"]).run().must_succeed();
        assert!(done.stderr.starts_with("try version 0.2.0\n") && done.text().is_empty(), "{done}");
        // The same as a command of effigy's.
        let done = scene.effigy(&["try", "-y", "echo x >f"]).run().must_succeed();
        assert_eq!((content(scene, "f").as_str(), done.stderr.as_str()), ("x\n", ""));
    }

    fn the_network_is_taken_away(scene: &Scene) {
        let interfaces = |arguments: &[&str]| try_with(scene, arguments).run().must_succeed().text();
        assert_eq!(interfaces(&["-x", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"]), "lo\n");
        assert_eq!(interfaces(&["cat /proc/net/dev | cut -d: -f1"]), scene.sh("cat /proc/net/dev | cut -d: -f1").run().text());
    }

    fn effects_of_try_are_sessions_of_effigy(scene: &Scene) {
        try_with(scene, &["-y", "echo x >f"]).run().must_succeed();
        scene.effigy(&["undo", "-y"]).run().must_succeed();
        assert!(!exists(scene, "f"));
        let dir = sandbox(scene, "sandbox");
        try_with(scene, &["-N", &dir, "echo x >f"]).run().must_succeed();
        assert!(scene.effigy(&["log"]).run().must_succeed().text().contains("f (created)"));
        scene.effigy(&["commit", "-y"]).run().must_succeed();
        assert_eq!(content(scene, "f"), "x\n");
        // What is real now has no name in the sandbox any more.
        assert_eq!(scene.sh("stat -c %h f").run().text(), "1\n");
    }
}
