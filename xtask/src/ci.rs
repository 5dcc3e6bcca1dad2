//! All checks and all tests. The quick ones come first, the tests last, so that their results end the output.

use anyhow::{Context, Result};

use crate::shell::{self, cargo, title};
use crate::{deny, setup, siege, test, tidy};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    title("format");
    shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("`cargo fmt --all` puts it right")?;
    tidy::run()?;
    title("lints");
    shell::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    title("documentation");
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    deny::run()?;
    siege::run_short()?;
    test::run_prepared()
}
