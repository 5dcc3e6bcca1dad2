//! The object of the XDP program, which is in the repository, so that a build needs no compiler for it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::shell::{command, root, run, title};

/// The directory of the sources, in which they are built, so that the object contains no path.
const DIRECTORY: &str = "crates/xdp/bpf";

const SOURCE: &str = "shoal.bpf.c";
const OBJECT: &str = "shoal.bpf.o";

/// Another version of the compiler writes another object.
pub(crate) const COMPILER: &str = "clang-14";
pub(crate) const OBJCOPY: &str = "llvm-objcopy-14";

/// Builds the XDP program, and compares it with the object in the repository.
#[derive(Args)]
pub(crate) struct Bpf {
    /// Replace the object in the repository
    #[arg(long)]
    write: bool,
}

impl Bpf {
    /// Compares only.
    pub(crate) const COMPARE: Self = Self { write: false };

    pub(crate) fn run(self) -> Result<()> {
        title("the XDP program");
        let directory = root().join(DIRECTORY);
        let target = root().join("target");
        fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
        let built = target.join(OBJECT);
        build(&directory, &built)?;
        let object = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
        let committed = directory.join(OBJECT);
        if self.write {
            fs::write(&committed, &object)
                .with_context(|| format!("cannot write {}", committed.display()))?;
        }
        ensure!(
            fs::read(&committed).is_ok_and(|committed| committed == object),
            "{DIRECTORY}/{OBJECT} is not the one that {COMPILER} makes of its source: run `cargo xtask bpf --write`"
        );
        eprintln!("{DIRECTORY}/{OBJECT} is that of its source, {} bytes", object.len());
        Ok(())
    }
}

fn build(directory: &Path, out: &Path) -> Result<()> {
    // `-g` adds the types of the maps.
    let mut compile = command(COMPILER, &["-O2", "-g", "-target", "bpf", "-mcpu=v3"]);
    compile.args(["-Wall", "-Wextra", "-Werror", "-nostdinc", "-fdebug-compilation-dir=."]);
    run(compile.args(["-c", SOURCE, "-o"]).arg(out).current_dir(directory))?;
    // The lines of the source would double its size.
    let mut strip = command(OBJCOPY, &["--strip-debug"]);
    run(strip.args(["-R", ".BTF.ext", "-R", ".rel.BTF.ext", "-R", ".llvm_addrsig"]).arg(out))
}
