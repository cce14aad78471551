//! Every kind of effect: run bare, and run and committed, the tree must come out the same.

use crate::harness::{Scene, as_everyone, has, skip};
use crate::trees::Times;

as_everyone! {
    fn files_are_made_changed_and_removed(scene: &Scene) {
        scene.differential(
            "echo one >a; echo two >b; mkdir d; echo three >d/c; echo four >d/e",
            "echo more >>a; rm b; echo new >n; mkdir -p x/y/z; echo deep >x/y/z/f; rm d/c; echo other >d/e; : >empty",
            Times::Ignored,
            &[],
        );
    }

    fn the_command_sees_its_own_effects(scene: &Scene) {
        scene.sh("echo v1 >f; mkdir d; : >d/old").run().must_succeed();
        let done = scene.run_script("s", "echo v2 >f; rm -r d; mkdir -p d/new; cat f; ls -A d; ls").run().must_succeed();
        assert_eq!(done.text(), "v2\nnew\nd\nf\n");
        assert_eq!(scene.sh("cat f; ls -A d").run().text(), "v1\nold\n");
    }

    fn symbolic_links(scene: &Scene) {
        scene.differential(
            "echo x >f; mkdir d; ln -s f to_f; ln -s d to_d; ln -s gone dangling; ln -s loop loop; ln -s f turned",
            "ln -s /nonexistent/absolute new; ln -s .. d/up; rm to_f; ln -sfn .. to_d; ln -s loop2 loop2; echo y >turned; \
             rm dangling loop; ln -s \"$(printf 'new\\nline')\" odd; cp -P new copy",
            Times::Ignored,
            &[],
        );
    }

    fn a_link_to_a_directory_is_written_through_to_what_it_names(scene: &Scene) {
        scene.differential(
            "mkdir -p real/in; ln -s real link; ln -s ../home away; echo x >real/in/f",
            "echo y >link/in/f; echo new >link/new; echo out >away/from-work; rm -r link/in; mkdir link/in2",
            Times::Ignored,
            &[],
        );
    }

    fn hard_links_among_new_files(scene: &Scene) {
        scene.differential(
            "mkdir d",
            "echo n >n1; ln n1 n2; ln n1 d/n3; mkdir -p e/f; ln n2 e/f/n4; echo m >m1; ln m1 m2; rm m1; ln -s n1 s; ln s s2",
            Times::Ignored,
            &[],
        );
    }

    fn hard_links_of_files_that_were_there(scene: &Scene) {
        scene.differential(
            "echo a >h1; ln h1 h2; mkdir d; ln h1 d/h3; echo b >k1; ln k1 k2; echo c >l1; ln l1 l2; echo d >m1; ln m1 m2",
            "echo more >>h1; rm k1; truncate -s 0 m2",
            Times::Ignored,
            &[],
        );
    }

    fn metadata_of_a_file_with_two_names(scene: &Scene) {
        scene.differential(
            "echo c >l1; ln l1 l2; echo d >m1; ln m1 m2; mkdir d; ln m1 d/m3; echo n >n1; ln n1 n2",
            "chmod 600 l2; chmod 640 d/m3; touch -d 2001-01-01 n1",
            Times::Ignored,
            &[],
        );
    }

    fn each_name_of_a_file_changed_in_another_way(scene: &Scene) {
        scene.differential(
            "for n in 1 2 3 4 5 6; do echo $n >a$n; ln a$n b$n; done",
            "touch -d 2001-01-01 a1; echo more >>b1; echo more >>b2; sleep 0.02; touch -d 2001-01-01 a2; \
             touch -d 2002-02-02 a3; chmod 600 b3; chmod 600 b4; touch -d 2002-02-02 a4; \
             chmod 600 a5; sleep 0.02; chmod 640 b5; echo more >>a6; chmod 711 b6",
            Times::Ignored,
            &[],
        );
    }

    fn what_was_done_under_other_names_is_in_place_too(scene: &Scene) {
        scene.sh("echo n >n1; ln n1 n2; ln n1 n3; touch -d 2020-01-01 n1").run().must_succeed();
        scene.run_script("s", "touch -d 2001-01-01 n1; sleep 0.02; chmod 600 n3; sleep 0.02; echo more >>n2").run().must_succeed();
        scene.commit("s");
        let state = || scene.sh("cat n1; stat -c '%a %h' n1 n2 n3; [ $(stat -c %Y n2) -gt 1600000000 ] && echo late").run().must_succeed().text();
        assert_eq!(state(), "n\nmore\n600 3\n600 3\n600 3\nlate\n");
        assert_eq!(scene.effigy(&["commit", "--dry-run", "s"]).run().must_succeed().text(), "");
        scene.commit("s");
        assert_eq!(state(), "n\nmore\n600 3\n600 3\n600 3\nlate\n");
        scene.effigy(&["undo", "-y", "s"]).run().must_succeed();
        assert_eq!(scene.sh("cat n2; stat -c '%a %h %Y' n3").run().text(), "n\n644 3 1577836800\n");
        scene.commit("s");
        assert_eq!(state(), "n\nmore\n600 3\n600 3\n600 3\nlate\n");
    }

    fn names_of_a_file_committed_one_by_one(scene: &Scene) {
        // Root's overlay keeps the names together, so that one brings all.
        if scene.is_root() {
            return;
        }
        scene.sh("echo n >n1; ln n1 n2").run().must_succeed();
        scene.run_script("s", "chmod 600 n1; sleep 0.02; echo more >>n2").run().must_succeed();
        scene.effigy(&["commit", "-y", "--only", "n1", "s"]).run().must_succeed();
        assert_eq!(scene.sh("cat n1; stat -c %a n2").run().text(), "n\n600\n");
        scene.commit("s");
        assert_eq!(scene.sh("cat n1; stat -c %a n2").run().text(), "n\nmore\n600\n");
    }

    fn a_replaced_name_leaves_its_hard_link_alone(scene: &Scene) {
        scene.differential(
            "echo a >h1; ln h1 h2; echo b >k1; ln k1 k2",
            "echo new >t; mv t h1; rm k2; echo other >k2",
            Times::Ignored,
            &[],
        );
    }

    fn permissions(scene: &Scene) {
        scene.differential(
            "for n in 1 2 3 4 5; do echo $n >f$n; mkdir d$n; done; chmod 4755 f4; chmod 2755 d4",
            "chmod 755 f1; chmod 0 f2; chmod 4711 f3; chmod 1777 d1; chmod 2770 d2; chmod 500 d3; umask 077; \
             : >private; mkdir own; umask 0; : >open; mkdir wide; cp /bin/true t; chmod 6755 t; : >d4/inherits",
            Times::Ignored,
            &[],
        );
    }

    fn times_of_files(scene: &Scene) {
        scene.differential(
            "for n in 1 2 3; do echo $n >f$n; touch -d '2020-02-02 02:02:02.2' f$n; done; ln -s f1 s; touch -hd '2021-01-01' s",
            "touch -d '2001-01-01 00:00:00.123456789' f1; touch -d '1960-01-01' f2; echo new >n; touch -r f1 n; \
             touch -hd '2002-03-04 05:06:07.000000001' s; mkfifo p; touch -d '2003-01-01' p; cp -p f3 c",
            Times::OfFiles,
            &[],
        );
    }

    fn extended_attributes(scene: &Scene) {
        if !has(scene, "setfattr") {
            return;
        }
        scene.differential(
            "echo a >a; echo b >b; echo c >c; mkdir d; setfattr -n user.keep -v 1 b; setfattr -n user.drop -v 1 c; setfattr -n user.d -v 1 d",
            "setfattr -n user.new -v value a; setfattr -n user.keep -v 2 b; setfattr -x user.drop c; setfattr -n user.d2 -v 2 d; \
             echo n >n; setfattr -n user.bytes -v 0x00ff0a n; mkdir e; setfattr -n user.e -v '' e; echo more >>b",
            Times::Ignored,
            &[],
        );
    }

    fn access_control_lists(scene: &Scene) {
        if !has(scene, "setfacl") {
            return;
        }
        if scene.sh("echo a >probe; setfacl -m u::rwx,g::r probe && setfacl -m m::r probe").run().status != 0 {
            return skip("the filesystem of the tests keeps no access control lists");
        }
        let id = scene.uid();
        scene.differential(
            &format!("echo a >a; echo b >b; mkdir d; setfacl -m u:{id}:rw,m::rw b; setfacl -d -m u:{id}:rwx d"),
            &format!(
                "setfacl -m u:{id}:rwx,g:{id}:r a; setfacl -b b; : >d/inherits; mkdir d/also; mkdir e; setfacl -d -m g:{id}:rx e; \
                 setfacl -m u:{id}:rwx e; : >e/f"
            ),
            Times::Ignored,
            &[],
        );
    }

    fn device_nodes_of_root(scene: &Scene) {
        let make = "umask 027; mkdir d; chmod g+s d; mknod null c 1 3; mknod d/disk b 7 200; mknod -m 666 gone c 1 5; rm gone";
        if !scene.is_root() {
            let done = scene.run_script("s", "mknod null c 1 3").run();
            assert!(done.stderr.contains("not permitted") && scene.summary("s").is_empty(), "{done}");
            return;
        }
        let opened = "cat null 2>/dev/null || echo unopened; echo x >null 2>/dev/null || echo unwritten";
        let done = scene.run_script("s", &format!("{make}; {opened}")).run().must_succeed();
        assert_eq!(done.text(), "unopened\nunwritten\n");
        for command in ["commit", "replay"] {
            let refused = scene.effigy(&[command, "s", "-y"]).run();
            assert_eq!(refused.status, 1, "{refused}");
            assert!(refused.stderr.contains("d/disk") && refused.stderr.contains("/null") && !refused.stderr.contains("gone"), "{refused}");
            assert_eq!(scene.sh("ls").run().text(), "");
            scene.effigy(&[command, "s", "-y", "--devices"]).run().must_succeed();
            let made = scene.sh("stat -c '%n %F %a %t:%T' null d/disk").run();
            assert_eq!(made.text(), "null character special file 640 1:3\nd/disk block special file 640 7:c8\n");
            scene.effigy(&["undo", "s", "-y"]).run().must_succeed();
            assert_eq!(scene.sh("ls").run().text(), "");
        }
    }

    fn files_with_holes(scene: &Scene) {
        scene.differential(
            "truncate -s 4M old; printf x | dd of=old bs=1 seek=2000000 conv=notrunc 2>/dev/null; echo full >grown",
            "truncate -s 8M new; printf end | dd of=new bs=1 seek=5000000 conv=notrunc 2>/dev/null; \
             printf y | dd of=old bs=1 seek=3000000 conv=notrunc 2>/dev/null; truncate -s 2M grown; mkdir d; cp --sparse=always new d/copy",
            Times::Ignored,
            &[],
        );
    }

    fn pipes_and_sockets(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.differential(
            "mkfifo -m 600 old; mkfifo gone; echo x >turned",
            "mkfifo p; chmod 620 old; rm gone; rm turned; mkfifo turned; mkdir d; mkfifo d/q; \
             python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"sock\"); t = socket.socket(socket.AF_UNIX); t.bind(\"d/sock\")'",
            Times::Ignored,
            &[],
        );
    }

    fn names_of_every_kind(scene: &Scene) {
        let long = "n".repeat(255);
        scene.differential(
            &format!("mkdir d; : >'d/ lead'; : >\"$(printf 'd/old\\nline')\"; : >\"$(printf 'd/\\377\\376')\"; echo x >d/{long}"),
            &format!(
                "cd d; : >' a b '; : >-rf; : >'*'; : >'a\"b'; : >\"a'b\"; : >'a\\b'; : >\"$(printf 'new\\nline')\"; : >\"$(printf 'tab\\there')\"; \
                 : >\"$(printf '\\033[31mred')\"; : >\"$(printf '\\302\\200\\303\\051')\"; : >é; : >.hidden; : >..almost; : >'#x'; : >'%s'; \
                 rm ' lead' \"$(printf 'old\\nline')\" \"$(printf '\\377\\376')\"; echo more >>{long}; mkdir -- -d '[x]' '{{a,b}}'; : >'[x]/$HOME'; \
                 mkdir .wh..wh..opq; : >.wh.f; : >trusted.overlay.x"
            ),
            Times::Ignored,
            &[],
        );
    }

    fn deletions(scene: &Scene) {
        scene.differential(
            "mkdir -p a/b/c d/e f; for p in a/1 a/b/2 a/b/c/3 d/4 d/e/5 f/6; do echo $p >$p; done; mkdir empty; chmod 500 f",
            "rm -r a; rm d/e/5; rmdir d/e empty; rm d/4; chmod 700 f; rm -r f",
            Times::Ignored,
            &[],
        );
    }

    fn recreated_directories(scene: &Scene) {
        scene.differential(
            "mkdir -p d/sub/deep k m/keep n; for p in d/old d/sub/x d/sub/deep/y k/old m/keep/f m/other n/f; do echo $p >$p; done; chmod 751 k",
            "rm -r d k; mkdir d k; echo n >d/new; mkdir d/sub; echo z >d/sub/z; mv m m2; mkdir m; cp -r m2/keep m/; rm -r n; mkdir n; \
             echo f >n/f",
            Times::Ignored,
            &[],
        );
    }

    fn types_that_change(scene: &Scene) {
        scene.differential(
            "for n in 1 2 3 4 5 6; do echo $n >f$n; mkdir d$n; echo $n >d$n/in; done; ln -s d1 s1; ln -s f1 s2; mkdir empty",
            "rm f1; mkdir f1; echo x >f1/in; rm -r d1; echo x >d1; rm f2; ln -s f3 f2; rm -r d2; ln -s f3 d2; rm f4; mkfifo f4; \
             rm -r d4; mkfifo d4; rm s1; mkdir s1; : >s1/in; rm s2; echo x >s2; rmdir empty; : >empty",
            Times::Ignored,
            &[],
        );
    }

    fn renames(scene: &Scene) {
        scene.differential(
            "echo a >a; echo b >b; echo c >c; mkdir -p d/sub e; echo x >d/sub/x; echo y >d/y; echo z >e/z; ln -s a s",
            "mv a a2; mv b c; mv d d2; mv e d2/sub/e; mkdir n; echo n >n/n; mv n n2; mv s s2; mv d2/y .; mv n2/n n2/m",
            Times::Ignored,
            &[],
        );
    }

    fn names_that_are_swapped(scene: &Scene) {
        scene.differential(
            "echo a >a; echo b >b; mkdir d e; echo 1 >d/1; echo 2 >e/2",
            "mv a t; mv b a; mv t b; mv d t; mv e d; mv t e",
            Times::Ignored,
            &[],
        );
    }

    fn files_written_in_place(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.differential(
            "seq 1000 >edited; seq 1000 >appended; seq 1000 >truncated; seq 1000 >cut; seq 1000 >mapped; seq 1000 >patched",
            "sed -i s/5/five/ edited; echo end >>appended; : >truncated; truncate -s 100 cut; printf xyz | dd of=patched bs=1 seek=50 conv=notrunc 2>/dev/null; \
             python3 -c 'import mmap; f = open(\"mapped\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[7:10] = b\"map\"; m.flush()'",
            Times::Ignored,
            &[],
        );
    }

    fn a_home_and_a_working_directory_at_once(scene: &Scene) {
        scene.differential(
            "mkdir -p ../home/.config/app; echo old >../home/.config/app/conf; echo x >f",
            "echo new >../home/.config/app/conf; mkdir -p $HOME/.cache/app; echo c >$HOME/.cache/app/c; mv f $HOME/f; ln -s $HOME/f f",
            Times::Ignored,
            &[],
        );
    }

    fn closed_directories_and_files(scene: &Scene) {
        scene.committed_twice(
            "mkdir -p shut/in; echo x >shut/in/f; echo y >unreadable; mkdir unwritable; echo z >unwritable/f; chmod 0 unreadable; chmod 500 unwritable; chmod 300 shut",
            "mkdir -p closed/in; echo n >closed/in/n; chmod 0 closed; chmod 600 unreadable; echo more >>unreadable; chmod 0 unreadable; \
             chmod 700 unwritable; rm unwritable/f; : >unwritable/g; chmod 500 unwritable",
        );
    }

    fn many_files_and_a_deep_tree(scene: &Scene) {
        let deep = vec!["d"; 150].join("/");
        scene.differential(
            "mkdir many; for n in $(seq 600); do echo $n >many/$n; done",
            &format!(
                "for n in $(seq 1 2 600); do rm many/$n; done; for n in $(seq 2 4 600); do echo new >many/$n; done; \
                 for n in $(seq 300); do mkdir -p new/$((n % 10)); echo $n >new/$((n % 10))/$n; done; mkdir -p {deep}; echo x >{deep}/f"
            ),
            Times::Ignored,
            &[],
        );
    }

    fn the_working_directory_itself(scene: &Scene) {
        // For an ordinary user it is the root of a cover here: what leads to it belongs to somebody else.
        for (name, mode) in [("sticky", "1751"), ("open", "755"), ("closed", "0")] {
            scene.run_script(name, &format!("chmod {mode} .")).run().must_succeed();
            let from_outside = |arguments: &[&str]| scene.effigy(arguments).dir(scene.area()).run().must_succeed().text();
            assert_eq!(from_outside(&["summary", name]), format!("m {}\n", scene.work().display()));
            from_outside(&["commit", name, "-y"]);
            assert_eq!(scene.sh("stat -c %a work").dir(scene.area()).run().text(), format!("{mode}\n"));
        }
    }

    fn what_only_looks_like_a_change_is_no_effect(scene: &Scene) {
        scene.sh("echo a >a; echo b >b; chmod 640 b; echo c >c; touch -d 2020-01-01 c; mkdir d; : >d/f; ln -s a s; echo same >e; touch -d 2020-01-01 e")
            .run()
            .must_succeed();
        scene.run_script(
            "s",
            ": >>a; chmod 600 b; chmod 640 b; touch -d 2020-01-01 c; : >d/new; rm d/new; mkdir t; rmdir t; cat s >/dev/null; \
             cp -p e e2; mv e2 e; touch d",
        )
        .run()
        .must_succeed();
        assert_eq!(scene.summary("s"), [] as [&str; 0]);
    }

    fn every_code_of_the_summary(scene: &Scene) {
        scene.sh("echo f >f; echo m >m; echo g >g; mkdir d; echo o >d/old; echo t >t; mkdir -p gone/below; : >gone/below/x").run().must_succeed();
        scene.run_script("s", "echo v2 >f; chmod 751 m; rm g; rm -r d; mkdir d; : >d/new; rm t; mkdir t; mkdir -p n/sub; : >n/sub/y; rm -r gone")
            .run()
            .must_succeed();
        let expected = [
            "D @/area/work/d/old", "A @/area/work/d/new", "M @/area/work/f", "D @/area/work/g", "D @/area/work/gone", "D @/area/work/gone/below",
            "D @/area/work/gone/below/x", "m @/area/work/m", "A @/area/work/n", "A @/area/work/n/sub", "A @/area/work/n/sub/y", "T @/area/work/t",
        ];
        let path = |line: &str| line.split_once(' ').map(|(_, path)| path.to_owned());
        let mut expected = expected.map(str::to_owned);
        expected.sort_by_key(|line| path(line));
        assert_eq!(scene.summary("s"), expected);
        let listed = scene.summary("s");
        scene.commit("s");
        assert_eq!(scene.summary("s"), listed, "the summary of a session that has been applied");
    }
}

#[test]
fn owners_and_capabilities_as_root() {
    crate::harness::as_root(|scene| {
        scene.differential(
            "echo a >a; echo b >b; mkdir d; echo c >c; chown 33:33 c; echo k >k; chmod 4755 k; cp /bin/true t; setcap cap_net_raw+ep t || :",
            "chown 65534:65534 a; chown -h 4242:100 b; chown 1:2 d; echo more >>c; chgrp 5 k; mkdir n; : >n/f; chown -R 1000:1000 n; \
             ln -s x s; chown -h 7:8 s; mkfifo p; chown 9 p; cp /bin/true u; setcap cap_net_bind_service+ep u || :; chmod 700 t",
            Times::Ignored,
            &[],
        );
    });
}
