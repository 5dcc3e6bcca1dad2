//! The configuration of one start: the templates of a description with their values.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::description::{Description, WHITELIST};
use crate::load::Load;
use crate::template::{UnknownPlaceholder, Values};

/// The values for a tracker at `address`.
#[must_use]
pub fn values(
    address: SocketAddr,
    workers: usize,
    folder: &str,
    load: &Load,
    announce_reply_bytes: usize,
) -> Values {
    let mut values = Values::default();
    values.set("address", address);
    values.set("ip", address.ip());
    values.set("port", address.port());
    values.set("workers", workers);
    values.set("folder", folder);
    values.set("whitelist", WHITELIST);
    values.set("numwant", load.numwant.max(1));
    values.set("announce_reply_bytes", announce_reply_bytes);
    values
}

/// Names and contents of its files.
///
/// # Errors
/// Where a template names an unknown placeholder.
pub fn files(
    description: &Description,
    values: &Values,
) -> Result<Vec<(String, String)>, UnknownPlaceholder> {
    let files = description.files.iter();
    files.map(|file| Ok((file.name.clone(), values.expand(&file.text)?))).collect()
}

/// Its arguments.
///
/// # Errors
/// Where one names an unknown placeholder.
pub fn arguments(description: &Description, values: &Values) -> Result<Vec<String>, UnknownPlaceholder> {
    description.start.arguments.iter().map(|argument| values.expand(argument)).collect()
}

/// Its environment.
///
/// # Errors
/// Where a variable names an unknown placeholder.
pub fn environment(
    description: &Description,
    values: &Values,
) -> Result<Vec<(String, String)>, UnknownPlaceholder> {
    let variables = description.start.environment.iter();
    variables.map(|(name, text)| Ok((name.clone(), values.expand(text)?))).collect()
}

/// All of it as one text, for the reader of a result.
///
/// # Errors
/// Where a template names an unknown placeholder.
pub fn in_full(
    description: &Description,
    program: &str,
    values: &Values,
) -> Result<String, UnknownPlaceholder> {
    let mut text = String::new();
    for (name, value) in environment(description, values)? {
        let _ = write!(text, "{name}={value} ");
    }
    let _ = writeln!(text, "{program} {}", arguments(description, values)?.join(" "));
    for (name, content) in files(description, values)? {
        let _ = write!(text, "\n# {name}\n{}\n", content.trim());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_load::PRESETS;

    #[test]
    fn a_configuration_is_complete() {
        let description = Description::parse(
            "name = \"a\"\ntitle = \"A\"\nprotocols = [\"udp\"]\n[find]\npath = [\"a\"]\n\
             [start]\narguments = [\"-f\", \"{folder}/a.conf\"]\nenvironment = { N = \"{workers}\" }\n\
             [[files]]\nname = \"a.conf\"\ntext = \"at {address}, for {numwant}\"\n",
        );
        let load = Load::of(&PRESETS[0]);
        let values = values("127.0.0.1:7".parse().unwrap(), 3, "FOLDER", &load, 200);
        let text = in_full(&description.unwrap(), "a", &values).unwrap();
        assert_eq!(text, "N=3 a -f FOLDER/a.conf\n\n# a.conf\nat 127.0.0.1:7, for 30\n");
    }
}
