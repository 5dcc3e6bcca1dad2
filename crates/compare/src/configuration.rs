//! The configuration of one start: the templates of a description with their values.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;

use crate::description::{CERTIFICATE, CERTIFICATE_AND_KEY, Description, KEY, WHITELIST};
use crate::load::{Http, Load, Transport};
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
    let keep_alive = matches!(load.transport, Transport::Http(Http { keep_alive: true, .. }));
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
    values
}

/// Somebody that a program may become that refuses to serve as root.
fn user() -> String {
    let uid = rustix::process::getuid();
    if uid.is_root() {
        return "nobody".to_owned();
    }
    // The numbers are the third field of passwd(5); a user whom it does not have goes by number.
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = uid.as_raw().to_string();
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(number.as_str()));
    own.and_then(|line| line.split(':').next()).unwrap_or(&number).to_owned()
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

/// The arguments of what stands before it, if there is something.
///
/// # Errors
/// Where one names an unknown placeholder.
pub fn front_arguments(
    description: &Description,
    values: &Values,
) -> Result<Option<Vec<String>>, UnknownPlaceholder> {
    let arguments = description.front.as_ref().map(|front| front.arguments.iter());
    arguments.map(|arguments| arguments.map(|argument| values.expand(argument)).collect()).transpose()
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

/// All of it as one text, for the reader of a result. `front` is what stands before it, and the values for that.
///
/// # Errors
/// Where a template names an unknown placeholder.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Protocol;
    use crate::preset::Preset;

    const HEAD: &str = "name = \"a\"\ntitle = \"A\"\nprotocols = [\"udp\"]\n[find]\npath = [\"a\"]\n";

    #[test]
    fn a_configuration_is_complete() {
        let description = Description::parse(&format!(
            "{HEAD}[start]\narguments = [\"-f\", \"{{folder}}/a.conf\"]\nenvironment = {{ N = \"{{workers}}\" }}\n\
             [[files]]\nname = \"a.conf\"\ntext = \"at {{address}}, for {{numwant}}\"\n",
        ));
        let load = Load::of(&Preset::find("published").unwrap());
        let values = values("127.0.0.1:7".parse().unwrap(), 3, "FOLDER", &load, 200);
        let text = in_full(&description.unwrap(), "a", &values, None).unwrap();
        assert_eq!(text, "N=3 a -f FOLDER/a.conf\n\n# a.conf\nat 127.0.0.1:7, for 30\n");
    }

    #[test]
    fn what_stands_before_it_is_in_the_configuration() {
        let description = Description::parse(&format!(
            "{HEAD}[https]\narguments = [\"{{port}}\", \"{{keep_alive}}\"]\n[https.front]\n\
             find = {{ path = [\"wall\"] }}\narguments = [\"{{port}}\", \"{{backend_port}}\", \"{{key}}\"]\n",
        ));
        let description = description.unwrap().over(Protocol::Https);
        let load = Load::of(&Preset::find("https-idle").unwrap());
        let values_at = |port| values(([127, 0, 0, 1], port).into(), 1, "FOLDER", &load, 200);
        let mut of_front = values_at(7);
        of_front.set("backend_port", 8);
        let text = in_full(&description, "a", &values_at(8), Some(("wall", &of_front))).unwrap();
        assert_eq!(text, "a 8 true\nwall 7 8 key.pem\n");
    }
}
