//! Comparisons over HTTP and HTTPS: Shoal itself, trackers made for the test, and front proxies.

use shoal_testkit::tools;

use crate::laboratory::{Laboratory, round, stderr};

/// Measures Shoal under the load of a preset.
fn compare_shoal(preset: &str, more: &str) -> (Laboratory, serde_json::Value) {
    let laboratory = Laboratory::new();
    let shoal = tools::shoal().unwrap().display();
    let (output, folder, result) = laboratory.compare(&format!(
        "--preset {preset} --trackers shoal-epoll --program shoal-epoll={shoal} --timeout 10s --duration 1s {more}"
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.file_name().unwrap().to_str().unwrap().ends_with(&format!("-{preset}")), "{folder:?}");
    (laboratory, result)
}

/// Checks that Shoal answered without errors, and returns the connections.
fn check_load(result: &serde_json::Value) -> &serde_json::Value {
    let measured = round(result, "shoal-epoll");
    assert_eq!(measured["failure"], serde_json::Value::Null, "{measured:#}");
    assert_eq!(measured["fill"]["responses"]["announce"], 200, "{measured:#}");
    let load = &measured["load"];
    assert!(load["responses"]["announce"].as_u64().unwrap() > 10, "{load:#}");
    let wrong: u64 = load["wrong"].as_object().unwrap().values().filter_map(|count| count.as_u64()).sum();
    assert_eq!((wrong, load["errors"].as_u64()), (0, Some(0)), "{load:#}");
    assert!(measured["usage"]["exact_s"].as_f64().unwrap() > 0.0, "{measured:#}");
    &load["connections"]
}

#[test]
fn connections_stay_where_the_preset_keeps_them() {
    let (_laboratory, result) = compare_shoal("http-keep-alive", "");
    let connections = check_load(&result);
    assert!(connections["opened"].as_u64().unwrap() <= 16, "{connections:#}");
}

#[test]
fn each_request_has_a_handshake_where_the_preset_says_so() {
    let (_laboratory, result) = compare_shoal("https-handshakes", "");
    let connections = check_load(&result);
    assert!(connections["handshakes_full"].as_u64().unwrap() > 10, "{connections:#}");
    assert_eq!(connections["handshakes_resumed"], 0, "{connections:#}");
    let configuration = result["trackers"][0]["configuration"].as_str().unwrap();
    assert!(configuration.contains("certificates = [\"FOLDER/certificate.pem\"]"), "{configuration}");
}

#[test]
fn sessions_are_resumed_where_the_preset_says_so() {
    let (_laboratory, result) = compare_shoal("https-resumption", "");
    let connections = check_load(&result);
    assert!(connections["handshakes_resumed"].as_u64().unwrap() > 0, "{connections:#}");
}

#[test]
fn idle_connections_are_counted_and_measured() {
    for preset in ["http-idle", "https-idle"] {
        let (_laboratory, result) = compare_shoal(preset, "--connections 200");
        let idle = &round(&result, "shoal-epoll")["idle"];
        assert_eq!((&idle["wanted"], &idle["open"]), (&200.into(), &200.into()), "{idle:#}");
        assert_eq!(idle["failure"], serde_json::Value::Null);
        assert!(idle["resident_open_bytes"].as_u64() >= idle["resident_before_bytes"].as_u64(), "{idle:#}");
    }
}

#[test]
fn a_front_proxy_is_part_of_its_tracker() {
    let laboratory = Laboratory::new();
    let proxy = "[front]\narguments = [\"-c\", \"echo proxy at {port}, tracker at {backend_port}; exit 5\"]\n\
                [front.find]\npath = [\"sh\"]";
    let proxied = laboratory.describe("proxied", "exec sleep 600", proxy);
    let (output, _, result) =
        laboratory.compare(&format!("--preset http-connections --port 25111 --trackers proxied {proxied}"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "proxied")["failure"].as_str().unwrap();
    assert!(failure.contains("exit code 5") && failure.contains("proxy at 25111, tracker at "), "{failure}");
    assert!(!failure.contains("tracker at 25111"), "the tracker has its own port: {failure}");
}

#[test]
fn the_reason_of_a_refusal_is_reported() {
    let laboratory = Laboratory::new();
    let rude = r#"exec python3 -c "import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    c, _ = s.accept()
    c.recv(4096)
    c.sendall(b'HTTP/1.0 200 OK\r\n\r\nd14:failure reason7:not youe')
    c.close()" {ip} {port}"#;
    let rude = laboratory.describe("rude", rude, "patience_s = 2");
    let (output, _, result) =
        laboratory.compare(&format!("--preset http-connections --trackers rude {rude}"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failure = round(&result, "rude")["failure"].as_str().unwrap();
    assert!(failure.contains("still refused") && failure.contains("not you"), "{failure}");
}

#[test]
fn only_trackers_of_the_protocol_take_part_unless_they_are_named() {
    let laboratory = Laboratory::new();
    let names = |arguments: &str| -> Vec<String> {
        let output = laboratory.run(&format!("--list --json {arguments}"));
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let https = names("--preset https-published");
    assert!(https.contains(&"aquatic_http".into()) && https.contains(&"opentracker".into()), "{https:?}");
    assert!(!https.contains(&"shoal-mmsg".into()) && !https.contains(&"aquatic_udp-mio".into()), "{https:?}");
    let output = laboratory.run("--preset https-published --trackers shoal-mmsg");
    assert!(stderr(&output).contains("described for UDP, and this load is HTTPS"), "{}", stderr(&output));
}

#[test]
fn more_idle_connections_than_open_files_are_refused() {
    let laboratory = Laboratory::new();
    let command =
        laboratory.command("--preset http-idle --connections 5000 --trackers shoal-epoll --allow-overlap");
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 1000; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args()).current_dir(laboratory.path());
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("--connections 5000") && message.contains("room for 800"), "{message}");
}
