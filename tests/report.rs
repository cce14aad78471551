//! The page of a session: it tells what happened, and nothing of what it tells can act.

use crate::harness::{Scene, as_everyone};

/// The tags that the page itself has.
const TAGS: &[&str] = &[
    "!DOCTYPE", "html", "head", "meta", "title", "style", "body", "h1", "h2", "code", "dl", "dt",
    "dd", "details", "summary", "pre", "span", "p", "ul", "li", "form", "input", "label", "table",
    "thead", "tbody", "tr", "th", "td", "script",
];

/// Whether every `<` begins a tag of the page's own, and no such tag has an attribute that acts.
#[track_caller]
fn must_be_tame(page: &str) {
    let script = page.find("<script>").expect("the page's script");
    assert_eq!(page.matches("<script").count(), 1, "a second script");
    for tag in page[..script].split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag
            .trim_start_matches('/')
            .split_whitespace()
            .next()
            .unwrap_or("");
        assert!(TAGS.contains(&name), "not a tag of the page's: <{tag}>");
        assert!(
            !tag.contains(" on") && !tag.contains("src=") && !tag.contains("href="),
            "it acts: <{tag}>"
        );
    }
    assert!(
        !page.contains('\u{1b}') && !page.contains('\u{202e}'),
        "control characters"
    );
}

as_everyone! {
    fn a_page_tells_and_nothing_in_it_acts(scene: &Scene) {
        let hostile = "mkdir 'a<script>alert(1)<'; printf '</pre><script>alert(2)</script>\\n\\033[31m\\342\\200\\256x\\nAPI_TOKEN=hunter2\\n' >text; \
            : >'<img src=x onerror=alert(3)>'; : >'\" onmouseover=\"alert(4)'; ln -s '<b>' \"$(printf 'l\\n<td>\\377')\"; rm old; \
            sh -c ': \"$1\"' '<i>' '</title><script>alert(5)</script>' --token=hunter3; (exit 3) || true; chmod 600 kept";
        scene.sh("echo was >old; echo k >kept; chmod 644 kept").run().must_succeed();
        scene.run_script("s", hostile).run().must_succeed();
        scene.effigy(&["report", "s", "-o", "page.html"]).run().must_succeed();
        let page = scene.sh("cat page.html; stat -c %a page.html >&2").run().must_say(&["600"]).text();
        must_be_tame(&page);
        for told in ["area/work", "complete", "5 added", "1 deleted", "&lt;img src=x onerror=alert(3)&gt;", "class=\"del\">-was", "&lt;/pre&gt;", "hunter2", "hunter3", "unlink", "symlink"] {
            assert!(page.contains(told), "nothing of {told}: {page}");
        }
        // To standard output, without secrets.
        let page = scene.effigy(&["report", "s", "--redact"]).run().must_succeed().text();
        must_be_tame(&page);
        assert!(!page.contains("hunter2") && !page.contains("hunter3"), "{page}");
        // A run without a record, and one that changed nothing.
        scene.effigy(&["run", "-n", "-s", "t", "--no-trace", "--", "true"]).run().must_succeed();
        let page = scene.effigy(&["report", "t"]).run().must_succeed().text();
        must_be_tame(&page);
        assert!(page.contains("nothing changed") && page.contains("not recorded"), "{page}");
        // Nothing half-written, and nothing left, where it cannot be written.
        scene.effigy(&["report", "s", "-o", "none/page.html"]).run().must_exit(125).must_say(&["none/page.html"]);
    }
}
