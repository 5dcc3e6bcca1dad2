//! Counts instructions by callgrind, and compares them with the accepted counts.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use serde_json::{Value, json};

/// A case fails if its count is above the accepted one by more than this share.
const RISE_MAX: f64 = 0.03;

/// The accepted counts, and the compiler that they are valid for.
struct Accepted {
    compiler: String,
    counts: BTreeMap<String, f64>,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Counts the instructions of some cases, prints them, and compares them with the accepted counts or accepts them.
///
/// # Errors
/// Returns an error if callgrind is missing or fails, or if the accepted counts cannot be read or written.
pub(crate) fn compare(
    cases: impl Iterator<Item = &'static str>,
    json: bool,
    accept: bool,
) -> Result<ExitCode> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.json");
    let (compiler, mut accepted) = (compiler()?, Accepted::read(&path)?);
    let is_comparable = compiler == accepted.compiler;
    let mut above = Vec::new();
    for case in cases {
        let count = count(case)?;
        let known = accepted.counts.get(case).copied();
        let change = known.map(|known| count / known - 1.0);
        if json {
            println!(r#"{{"name":"{case}","value":{count:.1},"unit":"instructions a reply"}}"#);
        } else {
            let beside = known
                .zip(change)
                .map(|(known, change)| format!("accepted {known:.1}, {:+.1} %", change * 100.0));
            println!("{case:<32} {count:>8.1} instructions a reply  {}", beside.unwrap_or_default());
        }
        if change.is_none_or(|change| change > RISE_MAX) {
            above.push(case);
        }
        if accept {
            accepted.counts.insert(case.to_owned(), count);
        }
    }
    if accept {
        Accepted { compiler, ..accepted }.write(&path)?;
        return Ok(ExitCode::SUCCESS);
    }
    if above.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let above = above.join(", ");
    if !is_comparable {
        eprintln!(
            "{above}: more than 3 % above the accepted count, but that is from another compiler ({}, this is \
             {compiler}). Measure the last commit with this compiler, too, then accept the counts with --accept.",
            accepted.compiler
        );
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "{above}: more than 3 % above the accepted count in {}, or not in it. Make it cheaper, or accept the counts \
         with --accept and give the reason in the commit.",
        path.display()
    );
    Ok(ExitCode::FAILURE)
}

/// Returns the instructions of a reply, counted in another process of this program.
fn count(case: &str) -> Result<f64> {
    let out = Scratch::new();
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["--tool=callgrind", "--quiet", "--toggle-collect=*measured_serve*"]);
    callgrind.arg(format!("--callgrind-out-file={}", out.0.display()));
    callgrind.arg(env::current_exe()?).args(["--child", case]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = callgrind.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "valgrind is missing; `cargo xtask setup` installs it".into(),
        _ => format!("cannot run valgrind: {error}"),
    })?;
    if !output.status.success() {
        return Err(format!("{case}: callgrind failed ({})", output.status).into());
    }
    let replies: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let profile = fs::read_to_string(&out.0)?;
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let instructions: f64 = totals.ok_or("callgrind has written no total")?.trim().parse()?;
    if instructions == 0.0 {
        return Err("callgrind has not found the measured function".into());
    }
    Ok(instructions / replies)
}

/// Returns the version of the compiler and the architecture, on which the counts depend.
fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(format!("{}, {}", String::from_utf8(output.stdout)?.trim(), env::consts::ARCH))
}

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("shoal-instructions-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the directory for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}

impl Accepted {
    fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => "{}".into(),
            Err(error) => return Err(error.into()),
        };
        let value: Value = serde_json::from_str(&text)?;
        let counts = value["counts"].as_object().into_iter().flatten();
        Ok(Self {
            compiler: value["compiler"].as_str().unwrap_or_default().to_owned(),
            counts: counts.filter_map(|(case, count)| Some((case.clone(), count.as_f64()?))).collect(),
        })
    }

    fn write(&self, path: &Path) -> Result<()> {
        let rounded = |count: &f64| (count * 10.0).round() / 10.0;
        let counts: BTreeMap<_, _> = self.counts.iter().map(|(case, count)| (case, rounded(count))).collect();
        let value = json!({ "compiler": self.compiler, "counts": counts });
        fs::write(path, format!("{value:#}\n"))?;
        Ok(())
    }
}
