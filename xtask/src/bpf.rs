//! The objects of the XDP programs, which are in the repository, so that a build needs no compiler for them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::shell::{command, root, run, title};

/// The directories in which sources are built, so that objects contain no path, and the names of source and object.
const PROGRAMS: [(&str, &str); 2] = [("crates/xdp/bpf", "shoal"), ("crates/load/bpf", "generator")];

/// Another version of the compiler writes another object.
pub(crate) const COMPILER: &str = "clang-14";
pub(crate) const OBJCOPY: &str = "llvm-objcopy-14";

/// Builds the XDP programs, and compares them with the objects in the repository.
#[derive(Args)]
pub(crate) struct Bpf {
    /// Replace the objects in the repository
    #[arg(long)]
    write: bool,
}

impl Bpf {
    /// Compares only.
    pub(crate) const COMPARE: Self = Self { write: false };

    pub(crate) fn run(self) -> Result<()> {
        title("the XDP programs");
        PROGRAMS.iter().try_for_each(|(directory, name)| self.check(directory, name))
    }

    fn check(&self, directory: &str, name: &str) -> Result<()> {
        let (source, object_name) = (format!("{name}.bpf.c"), format!("{name}.bpf.o"));
        let folder = root().join(directory);
        let target = root().join("target");
        fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
        let built = target.join(&object_name);
        build(&folder, &source, &built)?;
        let object = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
        let committed = folder.join(&object_name);
        if self.write {
            fs::write(&committed, &object)
                .with_context(|| format!("cannot write {}", committed.display()))?;
        }
        ensure!(
            fs::read(&committed).is_ok_and(|committed| committed == object),
            "{directory}/{object_name} is not the one that {COMPILER} makes of its source: run `cargo xtask bpf --write`"
        );
        eprintln!("{directory}/{object_name} is that of its source, {} bytes", object.len());
        Ok(())
    }
}

fn build(directory: &Path, source: &str, out: &Path) -> Result<()> {
    // `-g` adds the types of the maps.
    let mut compile = command(COMPILER, &["-O2", "-g", "-target", "bpf", "-mcpu=v3"]);
    compile.args(["-Wall", "-Wextra", "-Werror", "-nostdinc", "-fdebug-compilation-dir=."]);
    run(compile.args(["-c", source, "-o"]).arg(out).current_dir(directory))?;
    // `.BTF.ext` stays: it names the functions to the kernel, so that other programs such as xdpdump find them.
    let mut strip = command(OBJCOPY, &["--strip-debug"]);
    run(strip.args(["-R", ".llvm_addrsig"]).arg(out))
}
