//! The page's files, which are part of the program.

pub struct Asset {
    /// Its path below `/page/`.
    pub path: &'static str,
    pub bytes: &'static [u8],
    /// True if the bytes are compressed with gzip.
    pub is_packed: bool,
}

impl Asset {
    /// Its type, by the end of its name.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, end)| end) {
            Some("js" | "mjs") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("woff2") => "font/woff2",
            _ => "text/plain; charset=utf-8",
        }
    }
}

macro_rules! assets {
    (own: $($path:literal)* packed: $($packed:literal)*) => { &[
        $(Asset { path: $path, bytes: include_bytes!($path), is_packed: false },)*
        $(Asset {
            path: concat!("vendor/", $packed),
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $packed, ".gz")),
            is_packed: true,
        }),*
    ] };
}

/// All files but the page itself.
pub const ASSETS: &[Asset] = assets![
    own:
    "icon.svg"
    "main.js"
    "chat/answers.js"
    "chat/attachments.js"
    "chat/cleaned.js"
    "chat/composer.js"
    "chat/context.js"
    "chat/conversation.js"
    "chat/facts.js"
    "chat/fields.js"
    "chat/files.js"
    "chat/filling.js"
    "chat/keys.js"
    "chat/library.js"
    "chat/notice.js"
    "chat/pdf.js"
    "chat/pictures.js"
    "chat/pieces.js"
    "chat/presets.js"
    "chat/running.js"
    "chat/scroll.js"
    "chat/settings.js"
    "chat/sidebar.js"
    "chat/speed.js"
    "chat/storage.js"
    "chat/thoughts.js"
    "chat/thread.js"
    "chat/tools.js"
    "chat/transfer.js"
    "chat/turn.js"
    "chat/welcome.js"
    "markdown/blocks.js"
    "markdown/code.js"
    "markdown/emphasis.js"
    "markdown/entities.js"
    "markdown/inlines.js"
    "markdown/links.js"
    "markdown/math.js"
    "markdown/mermaid.js"
    "markdown/notes.js"
    "markdown/show.js"
    "shared/buttons.js"
    "shared/dom.js"
    "shared/format.js"
    "shared/frame.js"
    "shared/http.js"
    "shared/icons.js"
    "shared/layout.js"
    "shared/libraries.js"
    "shared/login.js"
    "shared/server.js"
    "shared/status.js"
    "shared/theme.js"
    "style/base.css"
    "style/chat.css"
    "style/code.css"
    "style/layout.css"
    "style/prose.css"
    "style/settings.css"
    "style/tiers.css"
    "tiers/cells.js"
    "tiers/chart.js"
    "tiers/experts.js"
    "tiers/gauges.js"
    "tiers/grid.js"
    "tiers/lanes.js"
    "tiers/metrics.js"
    "tiers/plan.js"
    "vendor/fonts/KaTeX_AMS-Regular.woff2"
    "vendor/fonts/KaTeX_Caligraphic-Bold.woff2"
    "vendor/fonts/KaTeX_Caligraphic-Regular.woff2"
    "vendor/fonts/KaTeX_Fraktur-Bold.woff2"
    "vendor/fonts/KaTeX_Fraktur-Regular.woff2"
    "vendor/fonts/KaTeX_Main-Bold.woff2"
    "vendor/fonts/KaTeX_Main-BoldItalic.woff2"
    "vendor/fonts/KaTeX_Main-Italic.woff2"
    "vendor/fonts/KaTeX_Main-Regular.woff2"
    "vendor/fonts/KaTeX_Math-BoldItalic.woff2"
    "vendor/fonts/KaTeX_Math-Italic.woff2"
    "vendor/fonts/KaTeX_SansSerif-Bold.woff2"
    "vendor/fonts/KaTeX_SansSerif-Italic.woff2"
    "vendor/fonts/KaTeX_SansSerif-Regular.woff2"
    "vendor/fonts/KaTeX_Script-Regular.woff2"
    "vendor/fonts/KaTeX_Size1-Regular.woff2"
    "vendor/fonts/KaTeX_Size2-Regular.woff2"
    "vendor/fonts/KaTeX_Size3-Regular.woff2"
    "vendor/fonts/KaTeX_Size4-Regular.woff2"
    "vendor/fonts/KaTeX_Typewriter-Regular.woff2"
    packed:
    "highlight.min.js"
    "katex.min.css"
    "katex.min.js"
    "pdf.min.mjs"
    "pdf.worker.min.mjs"
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Component, Path, PathBuf};

    fn text(asset: &Asset) -> &'static str {
        str::from_utf8(asset.bytes).unwrap()
    }

    /// The page's own files.
    fn own() -> impl Iterator<Item = &'static Asset> {
        ASSETS.iter().filter(|asset| !asset.path.starts_with("vendor/"))
    }

    fn own_scripts() -> impl Iterator<Item = &'static Asset> {
        own().filter(|asset| asset.path.ends_with(".js"))
    }

    /// Joins paths, without `.` and `..`.
    fn joined(base: &Path, to: &str) -> String {
        let mut path = PathBuf::new();
        for part in base.join(to).components() {
            match part {
                Component::ParentDir => assert!(path.pop(), "{to}"),
                Component::CurDir => {}
                other => path.push(other),
            }
        }
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn all_files_are_there() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/page");
        let mut found = BTreeSet::new();
        for dir in ["", "chat", "shared", "style", "tiers", "markdown", "vendor", "vendor/fonts"] {
            for file in fs::read_dir(here.join(dir)).unwrap().map(|file| file.unwrap().path()) {
                let name = file.strip_prefix(&here).unwrap().to_str().unwrap().to_owned();
                let is_served =
                    !name.ends_with(".rs") && !name.ends_with(".html") && !name.contains("LICENSE");
                if file.is_file() && is_served {
                    found.insert(name);
                }
            }
        }
        let known: BTreeSet<String> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
        assert_eq!(known, found);
    }

    #[test]
    fn modules_find_each_other() {
        let names: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.path).collect();
        let mut imports = 0;
        for asset in own_scripts() {
            let statements = text(asset).lines().filter(|line| line.starts_with("import "));
            let first = statements.map(|line| line.rsplit('"').nth(1).unwrap());
            // And what is loaded when it is needed.
            let later = text(asset).split("import(\"").skip(1).filter_map(|rest| rest.split('"').next());
            for from in first.chain(later) {
                let path = joined(Path::new(asset.path).parent().unwrap(), from);
                assert!(names.contains(path.as_str()), "{}: {from}", asset.path);
                imports += 1;
            }
        }
        assert!(imports > 50);
    }

    #[test]
    fn what_scripts_look_for_is_on_the_page() {
        let page = include_str!("index.html");
        for asset in own_scripts() {
            for id in text(asset).split("at(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(page.contains(&format!("id=\"{id}\"")), "{}: {id}", asset.path);
            }
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_html_is_parsed() {
        // What libraries could do beyond that, the policy keeps them from.
        for asset in own() {
            let own = text(asset).replace("http://www.w3.org/2000/svg", "");
            for refused in [
                "http://",
                "https://",
                "@import",
                "url(",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
            ] {
                assert!(!own.contains(refused), "{}: {refused}", asset.path);
            }
        }
    }
}
