//! Unix sockets: held back unless passed by name, since what a service does is real.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use crate::harness::{Scene, as_everyone, has};

const TALK: &str = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'ping'); print(s.recv(9).decode())";

/// A service outside that answers every connection; it goes with the test process.
fn service(scene: &Scene, name: &str) -> PathBuf {
    let path = scene.dir().join("area").join(name);
    let listener = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("open to the user");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            let mut word = [0; 4];
            if connection.read_exact(&mut word).is_ok() {
                let _gone = connection.write_all(b"pong");
            }
        }
    });
    path
}

fn talk(scene: &Scene, options: &[&str], socket: &Path) -> crate::harness::Done {
    scene
        .effigy(&["run", "-n"])
        .args(options)
        .args(&["--", "python3", "-c", TALK])
        .arg(socket)
        .run()
}

as_everyone! {
    fn a_socket_is_reached_only_when_it_is_passed(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let socket = service(scene, "sock");
        let name = socket.display().to_string();
        talk(scene, &[], &socket).must_exit(1).must_say(&["--pass-socket", &name]);
        let done = talk(scene, &["-s", "s", "--pass-socket", &name], &socket).must_succeed();
        assert_eq!(done.text(), "pong\n");
        assert_eq!(scene.summary("s"), [] as [&str; 0]);
        assert!(socket.exists());
    }

    fn what_goes_through_a_passed_socket_is_said_to_be_outside(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let socket = service(scene, "sock");
        let name = socket.display().to_string();
        talk(scene, &["-s", "s", "--pass-socket", &name], &socket).must_succeed().must_say(&["outside the recording", &name]);
        scene.effigy(&["summary", "s"]).run().must_say(&["outside the recording", &name]);
        let log = scene.effigy(&["log", "s"]).run().text();
        assert!(log.lines().any(|line| line.contains("outside the recording") && line.contains(&name)), "{log}");
        let listed = scene.effigy(&["ls", "--json"]).run().text();
        assert!(listed.contains(&format!("\"passed\":[\"{name}\"]")), "{listed}");
    }

    fn the_display_is_passed_when_asked_for(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let socket = service(scene, "wayland-7");
        let run = |options: &[&str]| {
            scene.effigy(&["run", "-n"]).args(options).args(&["--", "python3", "-c", TALK]).arg(&socket)
                .env("XDG_RUNTIME_DIR", socket.parent().expect("a directory")).env("WAYLAND_DISPLAY", "wayland-7").run()
        };
        run(&[]).must_exit(1);
        assert_eq!(run(&["--display"]).must_succeed().text(), "pong\n");
        scene.effigy(&["run", "-n", "--display", "--", "true"]).run().must_exit(125).must_say(&["display", "WAYLAND_DISPLAY"]);
    }

    fn the_agents_socket_is_passed(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let socket = service(scene, "agent");
        let done = scene.effigy(&["run", "-q", "-n", "--", "python3", "-c", TALK]).arg(&socket).env("SSH_AUTH_SOCK", &socket).run().must_succeed();
        assert_eq!(done.text(), "pong\n");
        // One that is gone is no reason to refuse.
        let gone = scene.work().join("gone");
        scene.effigy(&["run", "-q", "-n", "--", "true"]).env("SSH_AUTH_SOCK", gone).run().must_succeed();
    }

    fn a_socket_made_inside_works_inside(scene: &Scene) {
        if !has(scene, "python3") {
            return;
        }
        let script = "import socket, threading; s = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen(); \
            c = socket.socket(socket.AF_UNIX); c.connect('own'); a, _ = s.accept(); c.sendall(b'x'); print(a.recv(1).decode())";
        let done = scene.effigy(&["run", "-q", "-n", "-s", "s", "--", "python3", "-c", script]).run().must_succeed();
        assert_eq!(done.text(), "x\n");
        assert_eq!(scene.summary("s"), ["A @/area/work/own"]);
    }

    fn what_is_no_socket_is_not_passed(scene: &Scene) {
        scene.sh(": >plain").run().must_succeed();
        for path in ["plain", "not-there"] {
            scene.effigy(&["run", "-n", "--pass-socket", path, "--", "echo", "ran"]).run().must_exit(125).must_say(&[path]);
        }
    }
}
