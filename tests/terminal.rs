//! On a terminal: the question at the end of a run, job control, and programs that take the whole screen.

use crate::harness::{Done, Scene, as_everyone, has};

const DRIVE: &str = include_str!("terminal/drive.py");

/// Runs a command on a terminal of its own and goes through the steps: `e:` a text to wait for, `s:` what is typed, `w:` the new size.
fn talk(scene: &Scene, argv: &[&str], steps: &[&str]) -> Done {
    let quoted = |text: &str| {
        let escaped: String = text
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == ' ' {
                    c.to_string()
                } else {
                    format!("\\u{:04x}", u32::from(c))
                }
            })
            .collect();
        format!("\"{escaped}\"")
    };
    let step = |step: &&str| match step.split_once(':') {
        Some(("e", text)) => format!("[\"expect\", {}]", quoted(text)),
        Some(("s", text)) => format!("[\"send\", {}]", quoted(text)),
        Some(("w", size)) => format!("[\"size\", {size}]"),
        _ => panic!("{step} is no step"),
    };
    let steps = format!(
        "[{}]",
        steps.iter().map(step).collect::<Vec<_>>().join(", ")
    );
    let driver = scene.dir().join("drive.py");
    std::fs::write(&driver, DRIVE).expect("write the driver");
    scene
        .bare(&["python3"])
        .arg(&driver)
        .arg(&steps)
        .args(argv)
        .env("EFFIGY", scene.program())
        .env("TERM", "xterm")
        .run()
}

/// `effigy` with these arguments, on a terminal.
fn talk_to_effigy(scene: &Scene, arguments: &[&str], steps: &[&str]) -> Done {
    let program = scene.program().display().to_string();
    let argv: Vec<&str> = std::iter::once(program.as_str())
        .chain(arguments.iter().copied())
        .collect();
    talk(scene, &argv, steps)
}

as_everyone! {
    fn the_question_is_asked_and_yes_commits(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let done = talk_to_effigy(scene, &["run", "--", "sh", "-c", "echo x >f; exit 3"], &["e:work/f", "e:commit.*discard", "s:y\n"]);
        assert_eq!(scene.sh("cat f").run().text(), "x\n", "{done}");
        done.must_exit(3);
    }

    fn try_explores_and_asks(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let steps = ["s:echo hi >f; echo 'seen'inside\n", "e:seeninside", "s:exit\n", "e:Commit these changes", "s:y\n"];
        let done = talk_to_effigy(scene, &["try", "explore"], &steps).must_succeed();
        assert_eq!(scene.sh("cat f").run().text(), "hi\n", "{done}");
    }

    fn no_keeps_and_x_discards(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        talk_to_effigy(scene, &["run", "-s", "kept", "--", "sh", "-c", "echo x >f"], &["e:discard", "s:n\n"]).must_succeed();
        talk_to_effigy(scene, &["run", "-s", "dropped", "--", "sh", "-c", "echo x >f"], &["e:discard", "s:what\n", "e:discard", "s:x\n"]).must_succeed();
        // The end of input keeps the session too.
        talk_to_effigy(scene, &["run", "-s", "ended", "--", "sh", "-c", "echo x >f"], &["e:discard", "s:\u{4}"]).must_succeed();
        let listed = scene.effigy(&["ls", "--json"]).run().must_succeed().text();
        assert!(listed.contains("\"kept\"") && listed.contains("\"ended\"") && !listed.contains("\"dropped\""), "{listed}");
        assert_eq!(scene.sh("ls").run().text(), "");
    }

    fn the_diff_is_shown_and_the_question_asked_again(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.sh("echo v1 >f").run().must_succeed();
        let job = |pager: &str| format!("PAGER={pager} exec \"$EFFIGY\" run -- sh -c 'echo v2 >f'");
        talk(scene, &["sh", "-c", &job("cat")], &["e:discard", "s:d\n", "e:[+]v2", "e:discard", "s:y\n"]).must_succeed();
        assert_eq!(scene.sh("cat f").run().text(), "v2\n");
    }

    fn control_characters_in_names_are_escaped(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let done = talk_to_effigy(scene, &["run", "--", "sh", "-c", ": >\"$(printf 'a\\033[2Jb\\nc')\""], &["e:work/a", "e:discard", "s:n\n"]).must_succeed();
        assert!(!done.stdout.windows(4).any(|bytes| bytes == b"\x1b[2J"), "{done}");
    }

    fn the_terminal_is_the_real_one(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let outside = talk(scene, &["sh", "-c", "tty; test -t 0 && echo is one; stty size; test -e \"$(tty)\" && echo there; stat -c %t $(tty)"], &[]).must_succeed();
        let inside = talk_to_effigy(scene, &["run", "-q", "-n", "--", "sh", "-c", "tty; test -t 0 && echo is one; stty size; test -e \"$(tty)\" && echo there; stat -c %t $(tty)"], &[]).must_succeed();
        let plain = |done: &Done| done.text().lines().map(|line| line.trim_end_matches(|c: char| c.is_ascii_digit() || c == '\r').to_owned()).collect::<Vec<_>>();
        assert_eq!(plain(&inside), plain(&outside), "{inside}\n{outside}");
        talk_to_effigy(scene, &["run", "-q", "-n", "--", "sh", "-c", "echo to-the-terminal >/dev/tty; read line </dev/tty; echo got $line"], &["e:to-the-terminal", "s:word\n", "e:got word"]).must_succeed();
    }

    fn new_terminals_can_be_had_inside(scene: &Scene) {
        if !has(scene, "script") {
            return;
        }
        let done = scene.effigy(&["run", "-q", "-n", "--", "script", "-qec", "tty; test -t 1 && echo is one", "/dev/null"]).run().must_succeed();
        assert!(done.text().contains("/dev/pts/") && done.text().contains("is one"), "{done}");
    }

    fn nothing_inside_types_into_the_terminal(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let script = scene.work().join("type.py");
        let text = "import fcntl, termios\ntry:\n    fcntl.ioctl(0, termios.TIOCSTI, b'#')\n    print('typed')\nexcept OSError as error:\n    print('refused', error.errno)\n";
        std::fs::write(&script, text).expect("write the script");
        let script = script.display().to_string();
        for options in [&[][..], &["--no-trace"]] {
            let arguments: Vec<&str> = ["run", "-n"].iter().chain(options).chain(&["--", "python3", &script]).copied().collect();
            let done = talk_to_effigy(scene, &arguments, &["e:refused 1"]);
            assert!(!done.text().contains("typed"), "{done}");
        }
    }

    fn the_size_of_the_window_is_followed(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let script = "trap 'echo now $(stty size); exit 3' WINCH; echo first $(stty size); while :; do sleep 0.05; done";
        talk_to_effigy(scene, &["run", "-q", "-n", "--", "bash", "-c", script], &["e:first 24 80", "w:40, 120", "e:now 40 120"]).must_exit(3);
    }

    fn control_c_ends_the_command_not_effigy(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        talk_to_effigy(scene, &["run", "-n", "-s", "s", "--", "sh", "-c", ": >f; echo ready; read line"], &["e:ready", "s:\u{3}"]).must_exit(130);
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
        talk_to_effigy(scene, &["run", "-n", "-s", "t", "--", "sh", "-c", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"], &["e:ready", "s:\u{3}", "e:caught"]).must_exit(5);
        talk_to_effigy(scene, &["run", "-n", "-s", "u", "--", "sh", "-c", "trap 'exit 6' QUIT; echo ready; while :; do sleep 0.1; done"], &["e:ready", "s:\u{1c}"]).must_exit(6);
    }

    fn jobs_are_stopped_and_continued(scene: &Scene) {
        if !has(scene, "python3") || !has(scene, "bash") {
            return;
        }
        let done = talk(
            scene,
            &["bash", "--norc", "--noprofile", "-i"],
            &[
                "s:PS1='> '\n", "s:\"$EFFIGY\" run -n -s s -- sh -c 'echo rea''dy; read line; echo got $line >f'; echo status $?\n", "e:ready", "s:\u{1a}", "e:Stopped",
                "s:jobs\n", "e:Stopped", "s:fg\n", "e:run -n", "s:word\n", "s:wait; echo al''l done\n", "e:all done", "s:exit\n",
            ],
        );
        done.must_succeed();
        scene.commit("s");
        assert_eq!(scene.sh("cat f").run().text(), "got word\n");
    }

    fn a_job_in_the_background_goes_on(scene: &Scene) {
        if !has(scene, "python3") || !has(scene, "bash") {
            return;
        }
        talk(
            scene,
            &["bash", "--norc", "--noprofile", "-i"],
            &["s:PS1='> '\n", "s:\"$EFFIGY\" run -n -s s -- sh -c ': >f' & wait $!; echo sta''tus $?\n", "e:status 0", "s:exit\n"],
        )
        .must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn an_interactive_shell_inside(scene: &Scene) {
        if !has(scene, "python3") || !has(scene, "bash") {
            return;
        }
        let done = talk(
            scene,
            &["sh", "-c", "SHELL=$(command -v bash) exec \"$EFFIGY\" shell -n -s s"],
            &["s:unset HISTFILE; PS1='in''side '\n", "e:inside ", "s:echo x >f; (echo run''ning; exec sleep 3004)\n", "e:running", "s:\u{1a}", "e:Stopped", "s:jobs; kill %1; ls\n", "e:f\r\n", "s:exit 4\n", "s:exit 4\n"],
        );
        assert_eq!(scene.summary("s"), ["A @/area/work/f"], "{done}");
        assert!(!done.text().contains("no job control"), "{done}");
        done.must_exit(4);
    }

    fn a_shell_that_gives_the_terminal_back_when_it_ends(scene: &Scene) {
        if !has(scene, "python3") || !has(scene, "dash") {
            return;
        }
        let steps = ["s:(echo run''ning; exec sleep 3006)\n", "e:running", "s:\u{1a}", "e:Stopped", "s:kill -9 %1; wait; echo x >f\n", "s:exit 3\n", "s:exit 3\n"];
        for options in [&["-s", "s"][..], &["--no-trace"]] {
            let arguments: Vec<&str> = ["run", "-n"].iter().chain(options).chain(&["--", "dash", "-i"]).copied().collect();
            talk_to_effigy(scene, &arguments, &steps).must_exit(3);
        }
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn what_stops_nothing_outside_stops_nothing_inside(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let done = talk_to_effigy(scene, &["run", "-n", "-s", "s", "--", "sh", "-c", "echo ready; read line; echo $line >f"], &["e:ready", "s:\u{1a}", "s:word\n"]);
        done.must_succeed();
        assert_eq!(scene.summary("s"), ["A @/area/work/f"]);
    }

    fn vi_edits_a_file(scene: &Scene) {
        if !has(scene, "python3") || !has(scene, "vi") {
            return;
        }
        scene.sh("echo first >f").run().must_succeed();
        talk_to_effigy(scene, &["run", "-n", "-s", "s", "--", "vi", "-u", "NONE", "f"], &["e:first", "s:osecond\u{1b}", "e:second", "s::wq\r"]).must_succeed();
        scene.commit_only("s", "f");
        assert_eq!(scene.sh("cat f").run().text(), "first\nsecond\n");
    }

    fn a_password_is_asked_for_without_showing_it(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let ask = "import getpass; open('f', 'w').write(getpass.getpass('word? ')); print('tak' + 'en')";
        let done = talk_to_effigy(scene, &["run", "--", "python3", "-c", ask], &["e:word\\?", "s:hidden\n", "e:taken", "e:discard", "s:y\n"]).must_succeed();
        assert!(!done.text().contains("hidden"), "{done}");
        assert_eq!(scene.sh("cat f").run().text(), "hidden");
        // Ended in the middle of it, the question shows what is typed again.
        let done = talk_to_effigy(scene, &["run", "--", "sh", "-c", ": >g; stty -echo -icanon; kill -9 $$"], &["e:discard", "s:n\n"]);
        assert!(done.text().contains("n\r\n"), "{done}");
        done.must_exit(137);
    }

    fn programs_that_take_the_whole_screen_leave_it(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.sh("seq 200 >f").run().must_succeed();
        for (program, script, steps) in [
            ("less", "less f; echo x >g", ["e:\n20", "s:G", "e:200", "s:q"].as_slice()),
            ("vim", "vim -u NONE f; echo x >g", &["e:20", "s:dd:wq\r"]),
            ("htop", "htop; echo x >g", &["e:PID", "s:q"]),
            ("top", "top; echo x >g", &["e:PID", "s:q"]),
        ] {
            if !has(scene, program) {
                continue;
            }
            let mut steps = steps.to_vec();
            steps.extend(["e:discard", "s:x\n"]);
            talk_to_effigy(scene, &["run", "--", "sh", "-c", script], &steps).must_succeed();
        }
        assert_eq!(scene.sh("head -n1 f; ls").run().text(), "1\nf\n");
    }

    fn a_terminal_multiplexer_inside(scene: &Scene) {
        if !has(scene, "tmux") {
            return;
        }
        let script = "cd \"$HOME\"; export SHELL=/bin/sh TMUX_TMPDIR=$HOME; tmux -L e -f /dev/null new-session -d -x 60 -y 10 'PS1=.; export PS1; exec sh'; tmux -L e send-keys 'echo in''side; sleep 3005' Enter; \
            for i in $(seq 100); do tmux -L e capture-pane -p | grep -q '^inside' && break; sleep 0.05; done; tmux -L e send-keys C-c; tmux -L e send-keys 'echo st''ill >f' Enter; \
            for i in $(seq 100); do test -s f && break; sleep 0.05; done; cat f; tmux -L e kill-server";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "sh", "-euc", script]).env("TERM", "xterm").run().must_succeed();
        assert_eq!(done.text(), "still\n");
    }

    fn a_review_commits_what_was_accepted(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        scene.sh("echo was >changed; echo was >gone; mkdir d; echo was >d/f").run().must_succeed();
        let script = "echo now >changed; rm gone; echo x >d/f; echo new >d/g; mkdir e; printf 'raw\\033[31m\\n' >e/h; : >\"$(printf 'bad\\033]0;x\\007')\"";
        scene.run_script("s", script).run().must_succeed();
        // Left: nothing is changed.
        let done = talk_to_effigy(scene, &["review", "s"], &["e:undecided", "s:aaaq"]).must_succeed();
        assert!(done.text().contains("nothing was changed"), "{done}");
        assert_eq!(scene.sh("cat changed").run().text(), "was\n");
        // The directory they lie in, bad, changed, d, f, g, e, h, gone. What is the same is not drawn anew, but for a new size and for ^L all is.
        let steps = ["e:7 undecided", "w:9, 60", "e:7 undecided", "s:?\u{c}", "e:unfold", "s:x", "s:G", "s:a\u{c}", "e:1 accepted", "s:g", "s:jjd\u{c}", "e:now", "s:d", "s:a\u{c}", "e:2 accepted", "s:c", "e:Commit session s", "s:y\n", "e:committed"];
        let done = talk_to_effigy(scene, &["review", "s"], &steps).must_succeed();
        assert!(!done.text().contains("\u{1b}]0;x"), "a name acts on the terminal: {done}");
        assert_eq!(scene.sh("cat changed d/f; ls").run().text(), "now\nwas\nchanged\nd\n", "{done}");
        assert!(scene.effigy(&["ls"]).run().text().contains("(reviewed)"));
        scene.undo("s");
        assert_eq!(scene.sh("cat changed gone").run().text(), "was\nwas\n");
        // From the question at the end of a run; whoever leaves is asked again.
        let arguments = ["run", "-s", "t", "--", "sh", "-c", "echo one >one; echo two >two"];
        let steps = ["e:review.*discard", "s:r\n", "e:2 undecided", "s:q", "e:review.*discard", "s:r\n", "e:2 undecided", "s:A\u{c}", "e:2 accepted", "s:c", "e:Commit session t", "s:y\n", "e:committed"];
        talk_to_effigy(scene, &arguments, &steps).must_succeed();
        assert_eq!(scene.sh("cat one two").run().text(), "one\ntwo\n");
    }

    fn a_review_takes_a_terminal(scene: &Scene) {
        scene.run_script("s", "echo x >f").run().must_succeed();
        scene.bare(&["setsid", "-w"]).arg(scene.program()).args(&["review", "s"]).run().must_exit(1).must_say(&["terminal", "effigy diff"]);
        if !has(scene, "python3") {
            return;
        }
        // In colours, and without.
        let coloured = |more: &str| {
            let command = format!("{more} exec \"$EFFIGY\" review s");
            talk(scene, &["sh", "-c", &command], &["e:undecided", "s:aq"]).must_succeed().text()
        };
        let colour = |text: &str| ["\u{1b}[32", "\u{1b}[38;5;2"].iter().any(|code| text.contains(code));
        assert!(colour(&coloured("")), "no colours");
        assert!(!colour(&coloured("export NO_COLOR=1;")), "colours all the same");
    }
}
