//! A file that a process outside has open for writing, or locked, is named before it is replaced.

use crate::harness::{Scene, as_everyone, has, wait_for_line};

as_everyone! {
    fn a_file_open_for_writing_is_named(scene: &Scene) {
        scene.sh("echo 1 >db; echo 2 >other; echo 3 >read; mkdir d; echo 4 >d/below").run().must_succeed();
        scene.run_script("s", "echo new >db.new; mv db.new db; rm other; echo new >t; mv t read; rm -r d").run().must_succeed();
        let mut holder = scene.sh("exec 3>>db 4>>other 5<read 6>>d/below; echo ready; read line").piped().start();
        wait_for_line(&mut holder, "ready");
        let plan = scene.effigy(&["commit", "s", "--dry-run"]).run().must_succeed();
        plan.must_say(&["/db is open for writing by ", "/other is open for writing", "/d/below is open for writing"]);
        let json = scene.effigy(&["replay", "s", "--dry-run", "--json"]).run().must_succeed().text();
        let pid = holder.id();
        assert!(json.contains(&format!("/db\",\"pid\":{pid},\"comm\":")) && json.contains("\"warning\":\"open for writing\""), "{json}");
        assert!(!json.contains("/read\",\"pid\"") && json.contains("\"action\":"), "{json}");
        let done = scene.effigy(&["commit", "s", "-y"]).run().must_succeed().must_say(&["warning", "/db"]);
        assert!(!done.stderr.contains("/read is"), "{done}");
        // It goes on with the file that was replaced, which undo brings back.
        let quiet = scene.effigy(&["undo", "s", "-y", "-q"]).run().must_succeed();
        assert_eq!(quiet.stderr, "");
        holder.kill().expect("kill it");
        holder.wait().expect("it has ended");
        let quiet = scene.effigy(&["commit", "s", "-y"]).run().must_succeed();
        assert!(!quiet.stderr.contains("warning"), "{quiet}");
    }

    fn a_locked_file_is_named(scene: &Scene) {
        if !has(scene, "flock") {
            return;
        }
        scene.sh("echo 1 >db").run().must_succeed();
        scene.run_script("s", "echo new >db.new; mv db.new db").run().must_succeed();
        let mut holder = scene.sh("exec 3<db; flock 3; echo ready; read line").piped().start();
        wait_for_line(&mut holder, "ready");
        scene.effigy(&["commit", "s", "--dry-run"]).run().must_succeed().must_say(&["/db is locked by "]);
        holder.kill().expect("kill it");
        holder.wait().expect("it has ended");
    }
}
