//! `shoal config import`: a configuration of Shoal, made from one of another tracker.
//!
//! Each importer knows the keys of one tracker and what becomes of them. A `Translation` collects the result, and
//! `report` prints it. The facts about the other trackers are those of the versions that the tests name.

mod address;
mod aquatic;
mod bittorrent_tracker;
mod chihaya;
mod document;
mod mochi;
mod opentracker;
mod report;
mod rule;
mod torrust;
mod translation;
mod wt_tracker;
mod yaml;

use std::fs::File;
use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::Value;
use shoal_base::file;
use shoal_config::ConfigFile;

use self::document::Document;
use self::translation::Translation;
use shoal_runtime::failure::Failure;

/// The advice about a value of a kind that the other tracker refuses as well.
const ODD: &str = "not a value that this key accepts";

/// The maximum size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[expect(missing_docs, reason = "clap would print it; the help is beside the command")]
pub struct Import {
    /// The tracker that the files are for: one for all files, or one for each, separated by commas
    #[arg(long, value_name = "TRACKER", required = true, value_delimiter = ',')]
    from: Vec<Source>,

    /// Configuration files, which become one configuration; for bittorrent-tracker its command line, after `--`, or a
    /// file with it
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

const HELP: &str = "\
The configuration goes to standard output, with a comment for each key that was
not taken over: what it was, and what to do instead. A summary goes to standard
error. Keys that the other tracker does not know are named, with the nearest one.

Examples:
  shoal config import --from chihaya chihaya.yaml > shoal.toml
  shoal config import --from bittorrent-tracker -- --port 8000 --trust-proxy
  shoal config import --from aquatic_udp,aquatic_ws udp.toml ws.toml

Exit codes: 0 made, 1 failed, 2 a file is not a configuration of that tracker.";

/// A tracker whose configuration can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "clap would print it; the names are those of the trackers")]
pub enum Source {
    Opentracker,
    Chihaya,
    Mochi,
    #[value(name = "aquatic_udp")]
    AquaticUdp,
    #[value(name = "aquatic_http")]
    AquaticHttp,
    #[value(name = "aquatic_ws")]
    AquaticWs,
    BittorrentTracker,
    WtTracker,
    Torrust,
}

impl Source {
    /// Returns the name, as on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Reads a configuration. The error says why it is none of this tracker.
    fn import(self, text: &str, translation: &mut Translation) -> Result<(), String> {
        match self {
            Self::Opentracker => opentracker::import(text, translation),
            Self::Chihaya => chihaya::import(yaml(text)?, translation),
            Self::Mochi => mochi::import(yaml(text)?, translation),
            Self::AquaticUdp | Self::AquaticHttp | Self::AquaticWs => {
                aquatic::import(self, toml(text)?, translation)
            }
            Self::BittorrentTracker => bittorrent_tracker::import(text, translation),
            Self::WtTracker => wt_tracker::import(json(text)?, translation),
            Self::Torrust => torrust::import(toml(text)?, translation),
        }
    }
}

/// The outcome of an import.
#[derive(Debug)]
pub struct Imported {
    /// The configuration.
    pub configuration: String,
    /// The summary for the operator.
    pub summary: String,
}

/// Executes the command.
pub fn run(arguments: &Import) -> Result<Imported, Failure> {
    let files = inputs(arguments)?;
    let mut translation = Translation::default();
    let is_alone = files.len() == 1;
    for (source, input) in &files {
        translation.begin(if is_alone { String::new() } else { input.name.clone() });
        let invalid = |fault: String| {
            let source = source.name();
            Failure::Configuration(format!("{} is not a configuration of {source}: {fault}", input.name))
        };
        source.import(&input.text, &mut translation).map_err(invalid)?;
    }
    translation.begin(String::new());
    translation.complete();
    let configuration = report::configuration(&translation, &command(arguments));
    // A value with a quotation mark, for example, would leave its string.
    let made = ConfigFile { path: "the result", text: &configuration };
    shoal_config::read(Some(made), []).map_err(|problems| {
        Failure::Configuration(format!("a value cannot be written into a configuration:\n  {problems}"))
    })?;
    Ok(Imported { configuration, summary: report::summary(&translation) })
}

/// A configuration, with the name of its file.
struct Input {
    name: String,
    text: String,
}

/// Returns each input with its tracker.
fn inputs(arguments: &Import) -> Result<Vec<(Source, Input)>, Failure> {
    let Import { from, files } = arguments;
    if from.as_slice() == [Source::BittorrentTracker] && !Path::new(&files[0]).exists() {
        let text = files.iter().map(|word| bittorrent_tracker::quoted(word)).collect::<Vec<_>>().join(" ");
        return Ok(vec![(Source::BittorrentTracker, Input { name: "the command line".to_owned(), text })]);
    }
    if from.len() != 1 && from.len() != files.len() {
        let (trackers, files) = (from.len(), files.len());
        return Err(Failure::Configuration(format!(
            "--from names {trackers} trackers for {files} files; it must name one for all files, or one for each"
        )));
    }
    let sources = from.iter().cycle();
    files.iter().zip(sources).map(|(file, source)| Ok((*source, read(file)?))).collect()
}

/// Reads a file, which may be a pipe.
fn read(file: &str) -> Result<Input, Failure> {
    let read = File::open(file).and_then(|open| file::text(file::read_to_end(open, FILE_BYTES_MAX)?));
    let text = read.map_err(|error| Failure::Configuration(format!("{file} cannot be read: {error}")))?;
    Ok(Input { name: file.to_owned(), text })
}

/// Returns the command for the comment at the top.
fn command(arguments: &Import) -> String {
    let from = arguments.from.iter().map(|source| source.name()).collect::<Vec<_>>().join(",");
    let dashes = if arguments.files.iter().any(|file| file.starts_with('-')) { "-- " } else { "" };
    format!("shoal config import --from {from} {dashes}{}", arguments.files.join(" "))
}

fn toml(text: &str) -> Result<Document, String> {
    let root: Value =
        ::toml::from_str(text).map_err(|error| format!("it is not TOML: {error}").trim_end().to_owned())?;
    Document::new(root)
}

fn json(text: &str) -> Result<Document, String> {
    Document::new(serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?)
}

fn yaml(text: &str) -> Result<Document, String> {
    Document::new(yaml::parse(text).map_err(|error| format!("it is not YAML: {error}"))?)
}

/// Fails if a file has keys, none of which the tracker knows: then it is most likely one of another tracker.
fn some_are_known(known: usize, keys: usize) -> Result<(), String> {
    if known > 0 || keys == 0 {
        return Ok(());
    }
    Err(format!("it knows none of the {keys} keys; is --from right?"))
}
