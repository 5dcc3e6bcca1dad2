//! `shoal tls self-signed`: the files, who may read them, and what is not written over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use crate::kit::harness::run;

fn self_signed(arguments: &[&str]) -> Output {
    run(&[&["tls", "self-signed"], arguments].concat(), &[])
}

/// The words of a refusal, which must be one of the command line.
fn refusal(arguments: &[&str]) -> String {
    let output = self_signed(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_it_prints_can_be_put_into_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/tls");
    let out = directory.to_str().unwrap();
    let output = self_signed(&["--name", "localhost", "--name", "::1", "--out", out]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    assert_eq!(mode(&key), 0o600);
    assert!(fs::read_to_string(&certificate).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(fs::read_to_string(&key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let printed = String::from_utf8(output.stdout).unwrap();
    let section: Vec<&str> =
        printed.lines().skip_while(|line| *line != "[tls]").take_while(|line| !line.is_empty()).collect();
    let file = folder.path().join("shoal.toml");
    fs::write(&file, section.join("\n")).unwrap();
    let checked = run(&["config", "check", file.to_str().unwrap()], &[]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn nothing_is_written_over_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("a.pem"), folder.path().join("b.pem"));
    fs::write(&key, "precious").unwrap();
    let mut arguments = vec!["--name", "localhost"];
    arguments.extend(["--cert", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    let words = refusal(&arguments);
    assert!(words.contains("b.pem exists; --force replaces it"), "{words}");
    assert_eq!(fs::read_to_string(&key).unwrap(), "precious");
    assert!(!certificate.exists(), "half of a pair");
    arguments.push("--force");
    assert_eq!(self_signed(&arguments).status.code(), Some(0));
    assert_eq!(mode(&key), 0o600, "whatever it was before");
    assert!(certificate.exists());
}

#[test]
fn what_cannot_be_done_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tls");
    let out = out.to_str().unwrap();
    assert!(refusal(&["--out", out]).contains("--name"));
    assert!(refusal(&["--name", "localhost"]).contains("--out"));
    assert!(refusal(&["--name", "localhost", "--cert", "x"]).contains("--key"));
    assert!(refusal(&["--name", "localhost", "--cert", out, "--key", out]).contains("two files"));
    assert!(refusal(&["--name", "https://x/", "--out", out]).contains("neither a host name"));
}

/// The commands of the README are those that the help offers.
#[test]
fn the_help_tells_where_the_files_may_go() {
    let output = self_signed(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("--name NAME (--out DIR | --cert FILE --key FILE)"), "{help}");
}
