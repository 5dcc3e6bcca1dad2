//! Every crate of the workspace takes its lints and its licence from the workspace.

use super::{File, Finding};

const INHERITED: [(&str, &str); 3] = [
    ("[lints]\nworkspace = true\n", "lints"),
    ("\nlicense.workspace = true\n", "licence"),
    ("\npublish.workspace = true\n", "`publish = false`"),
];

pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    let is_crate = file.path.ends_with("Cargo.toml") && file.text.contains("[package]");
    // The fuzz targets are a workspace of their own, for another compiler.
    if !is_crate || file.text.contains("\n[workspace]\n") || file.text.starts_with("[workspace]\n") {
        return;
    }
    for (text, what) in INHERITED {
        if !file.text.contains(text) {
            findings.push(file.fault(1, format!("inherits no {what} from the workspace")));
        }
    }
}
