//! Counts instructions by callgrind, and compares them with the accepted counts.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use serde_json::{Value, json};
use shoal_testkit::callgrind;

use crate::{PROTECTED, UNPROTECTED};

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
    let (mut above, mut counted) = (Vec::new(), BTreeMap::new());
    for case in cases {
        let count = callgrind::count(case, "measured_serve")?;
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
        counted.insert(case, count);
    }
    if let (Some(with), Some(without), false) = (counted.get(PROTECTED), counted.get(UNPROTECTED), json) {
        println!(
            "With the limits of sources, bans and private addresses apart, an announce takes {:.3} times as many.",
            with / without
        );
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

/// Returns the version of the compiler and the architecture, on which the counts depend.
fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(format!("{}, {}", String::from_utf8(output.stdout)?.trim(), env::consts::ARCH))
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
