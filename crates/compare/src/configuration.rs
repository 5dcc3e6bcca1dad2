//! The configuration of a tracker for one run: the templates of its description, expanded.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use shoal_load::info_hash;

use crate::description::{CERTIFICATE, CERTIFICATE_AND_KEY, Description, KEY, WHITELIST};
use crate::load::{HttpTransport, LoadSpec, Transport};
use crate::template::{UnknownPlaceholder, Values};

pub fn values(
    address: SocketAddr,
    workers: usize,
    folder: &str,
    load: &LoadSpec,
    announce_reply_bytes: usize,
    interface: &str,
) -> Values {
    let keep_alive = matches!(load.transport, Transport::Http(HttpTransport { keep_alive: true, .. }));
    let mut values = Values::default();
    values.set("address", address);
    values.set("ip", address.ip());
    values.set("port", address.port());
    values.set("workers", workers);
    values.set("folder", folder);
    values.set("whitelist", WHITELIST);
    values.set("certificate", CERTIFICATE);
    values.set("key", KEY);
    values.set("certificate_and_key", CERTIFICATE_AND_KEY);
    values.set("keep_alive", keep_alive);
    values.set("user", user());
    values.set("numwant", load.numwant.max(1));
    values.set("announce_reply_bytes", announce_reply_bytes);
    values.set("interface", interface);
    values
}

/// Returns a user that a program can switch to if it refuses to serve as root.
fn user() -> String {
    let uid = rustix::process::getuid();
    if uid.is_root() {
        return "nobody".to_owned();
    }
    // The user id is the third field of passwd(5). A user without an entry is known by the number.
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.as_raw().to_string();
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(number.as_str()));
    own.and_then(|line| line.split(':').next()).unwrap_or(&number).to_owned()
}

pub fn files(
    description: &Description,
    values: &Values,
) -> Result<Vec<(String, String)>, UnknownPlaceholder> {
    let files = description.files.iter();
    files.map(|file| Ok((file.name.clone(), values.expand(&file.text)?))).collect()
}

pub fn arguments(description: &Description, values: &Values) -> Result<Vec<String>, UnknownPlaceholder> {
    description.start.arguments.iter().map(|argument| values.expand(argument)).collect()
}

pub fn front_arguments(
    description: &Description,
    values: &Values,
) -> Result<Option<Vec<String>>, UnknownPlaceholder> {
    let arguments = description.front.as_ref().map(|front| front.arguments.iter());
    arguments.map(|arguments| arguments.map(|argument| values.expand(argument)).collect()).transpose()
}

pub fn environment(
    description: &Description,
    values: &Values,
) -> Result<Vec<(String, String)>, UnknownPlaceholder> {
    let variables = description.start.environment.iter();
    variables.map(|(name, text)| Ok((name.clone(), values.expand(text)?))).collect()
}

/// Returns the whole configuration as text for readers. `front` is the program of the front proxy and its values.
pub fn in_full(
    description: &Description,
    program: &str,
    values: &Values,
    front: Option<(&str, &Values)>,
) -> Result<String, UnknownPlaceholder> {
    let mut text = String::new();
    for (name, value) in environment(description, values)? {
        let _ = write!(text, "{name}={value} ");
    }
    let _ = writeln!(text, "{program} {}", arguments(description, values)?.join(" "));
    if let Some((program, values)) = front
        && let Some(arguments) = front_arguments(description, values)?
    {
        let _ = writeln!(text, "{program} {}", arguments.join(" "));
    }
    for (name, content) in files(description, values)? {
        let _ = write!(text, "\n# {name}\n{}\n", content.trim());
    }
    Ok(text)
}

/// Writes the info hashes of the load in hexadecimal, one to a line. There may be ten million, so it avoids formatting.
pub fn write_whitelist(folder: &Path, load: &LoadSpec) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = BufWriter::new(File::create(folder.join(WHITELIST))?);
    let mut line = [b'\n'; 41];
    for torrent in 0..load.population.torrents {
        for (digits, byte) in line.chunks_exact_mut(2).zip(info_hash(load.seed, torrent).0) {
            digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        out.write_all(&line)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Protocol;
    use crate::load::preset::ComparisonPreset;

    const HEAD: &str = "name = \"a\"\ntitle = \"A\"\nprotocols = [\"udp\"]\n[find]\npath = [\"a\"]\n";

    #[test]
    fn a_configuration_is_complete() {
        let description = Description::parse(&format!(
            "{HEAD}[start]\narguments = [\"-f\", \"{{folder}}/a.conf\"]\nenvironment = {{ N = \"{{workers}}\" }}\n\
             [[files]]\nname = \"a.conf\"\ntext = \"at {{address}}, for {{numwant}}\"\n",
        ));
        let load = LoadSpec::of(&ComparisonPreset::find("published").unwrap());
        let values = values("127.0.0.1:7".parse().unwrap(), 3, "FOLDER", &load, 200, "lo");
        let text = in_full(&description.unwrap(), "a", &values, None).unwrap();
        assert_eq!(text, "N=3 a -f FOLDER/a.conf\n\n# a.conf\nat 127.0.0.1:7, for 30\n");
    }

    #[test]
    fn the_front_proxy_is_part_of_the_configuration() {
        let description = Description::parse(&format!(
            "{HEAD}[https]\narguments = [\"{{port}}\", \"{{keep_alive}}\"]\n[https.front]\n\
             find = {{ path = [\"proxy\"] }}\narguments = [\"{{port}}\", \"{{backend_port}}\", \"{{key}}\"]\n",
        ));
        let description = description.unwrap().over(Protocol::Https);
        let load = LoadSpec::of(&ComparisonPreset::find("https-idle").unwrap());
        let values_at = |port| values(([127, 0, 0, 1], port).into(), 1, "FOLDER", &load, 200, "lo");
        let mut front_values = values_at(7);
        front_values.set("backend_port", 8);
        let text = in_full(&description, "a", &values_at(8), Some(("proxy", &front_values))).unwrap();
        assert_eq!(text, "a 8 true\nproxy 7 8 key.pem\n");
    }
}
