//! Cases, figures, and their output.

use std::io::IsTerminal;
use std::process::{Command, ExitCode};

/// A measurement.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Whether it needs a process of its own, because it measures the memory of one.
    pub(crate) own_process: bool,
    /// Whether it runs without being named in full. Others are parts of a listed case.
    pub(crate) listed: bool,
    pub(crate) run: Box<dyn FnOnce() -> Vec<Figure>>,
}

/// A result of a measurement.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, run: impl FnOnce() -> Vec<Figure> + 'static) -> Self {
        Self { name: name.into(), own_process: false, listed: true, run: Box::new(run) }
    }

    pub(crate) fn in_own_process(self) -> Self {
        Self { own_process: true, ..self }
    }

    pub(crate) fn unlisted(self) -> Self {
        Self { listed: false, ..self }
    }

    /// Returns whether it runs with this filter.
    pub(crate) fn matches(&self, filter: &str) -> bool {
        self.name == filter || self.listed && self.name.contains(filter)
    }
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Self { name: name.into(), value, unit: unit.into() }
    }

    pub(crate) fn to_json(&self) -> String {
        format!(r#"{{"name":"{}","value":{:.3},"unit":"{}"}}"#, self.name, self.value, self.unit)
    }

    /// Parses the output of `to_json`. Names and units contain no quotes.
    fn from_json(line: &str) -> Option<Self> {
        let field = |name: &str| line.split_once(&format!("\"{name}\":")).map(|(_, rest)| rest);
        let text = |name: &str| field(name)?.strip_prefix('"')?.split('"').next().map(str::to_owned);
        let value = field("value")?.split([',', '}']).next()?.parse().ok()?;
        Some(Self { name: text("name")?, value, unit: text("unit")? })
    }
}

/// The times of optmem for the same operations, in ns: its Go benchmarks on a machine of the kind that Shoal is
/// developed on (two cores of an AMD EPYC at 2.6 GHz), one thread, medians. Another machine shifts both sides of a
/// ratio about equally.
const OPTMEM_NS: [(&str, f64); 26] = [
    ("time/Put", 104.0),
    ("time/Put1k", 232.0),
    ("time/Put1kInfohash", 144.0),
    ("time/Put1kInfohash1k", 113.0),
    ("time/PutDelete", 331.0),
    ("time/PutDelete1k", 361.0),
    ("time/PutDelete1kInfohash", 359.0),
    ("time/PutDelete1kInfohash1k", 453.0),
    ("time/DeleteNonexist", 105.0),
    ("time/DeleteNonexist1k", 126.0),
    ("time/DeleteNonexist1kInfohash", 111.0),
    ("time/DeleteNonexist1kInfohash1k", 107.0),
    ("time/PutGraduateDelete", 554.0),
    ("time/PutGraduateDelete1k", 571.0),
    ("time/PutGraduateDelete1kInfohash", 527.0),
    ("time/PutGraduateDelete1kInfohash1k", 531.0),
    ("time/GraduateNonexist", 105.0),
    ("time/GraduateNonexist1k", 204.0),
    ("time/GraduateNonexist1kInfohash", 154.0),
    ("time/GraduateNonexist1kInfohash1k", 152.0),
    ("time/AnnounceLeecher", 2246.0),
    ("time/AnnounceLeecher1kInfohash", 5323.0),
    ("time/AnnounceSeeder", 2445.0),
    ("time/AnnounceSeeder1kInfohash", 7513.0),
    ("time/ScrapeSwarm", 45.0),
    ("time/ScrapeSwarm1kInfohash", 56.0),
];

/// Prints figures as they come.
pub(crate) struct Report {
    json: bool,
    /// Runs every case once, to check that it works. The figures mean nothing.
    tiny: bool,
    failed: bool,
    printed: usize,
}

impl Report {
    pub(crate) fn new(json: bool, tiny: bool) -> Self {
        Self { json, tiny, failed: false, printed: 0 }
    }

    pub(crate) fn run(&mut self, case: Case) {
        let progress = std::io::stderr().is_terminal();
        if progress {
            eprint!("\r\x1b[K{} ...", case.name);
        }
        let figures = if case.own_process { run_child(&case.name, self.tiny) } else { Some((case.run)()) };
        if progress {
            eprint!("\r\x1b[K");
        }
        match figures {
            Some(figures) => figures.iter().for_each(|figure| self.print(figure)),
            None => {
                eprintln!("{}: the process that measures this case failed", case.name);
                self.failed = true;
            }
        }
    }

    pub(crate) fn finish(self) -> ExitCode {
        if self.printed == 0 {
            eprintln!("no case matches the filter");
        }
        if self.failed || self.printed == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn print(&mut self, figure: &Figure) {
        self.printed += 1;
        if self.json {
            println!("{}", figure.to_json());
            return;
        }
        let optmem = OPTMEM_NS.iter().find(|(name, _)| !self.tiny && *name == figure.name);
        let ratio =
            optmem.map(|(_, ns)| format!("  optmem {ns:5.0}, {:.1} times as long", ns / figure.value));
        println!("{:<44} {:>12.1} {}{}", figure.name, figure.value, figure.unit, ratio.unwrap_or_default());
    }
}

/// Runs one case in a new process.
pub(crate) fn run_child(name: &str, tiny: bool) -> Option<Vec<Figure>> {
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new(program);
    command.args(["--child", name]);
    if !tiny {
        command.arg("--full");
    }
    let output = command.output().ok()?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.lines().filter_map(Figure::from_json).collect())
}
