//! The measurements and files of a comparison.

use std::fs;

use shoal_testkit::tools;

use crate::laboratory::{Laboratory, round, stderr};

#[test]
fn shoal_and_the_ceiling_are_compared() {
    let laboratory = Laboratory::new();
    let shoal = tools::shoal().unwrap().display();
    let (output, folder, result) = laboratory.compare(&format!(
        "--trackers shoal-mmsg,wt-tracker,echo-mmsg --program shoal-mmsg={shoal} --name tiny --json"
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(folder.file_name().unwrap().to_str().unwrap().ends_with("-tiny"), "{folder:?}");

    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, result);
    assert_eq!(result["partial"], false);
    assert_eq!(result["schema_version"], 1);
    let trackers = result["trackers"].as_array().unwrap();
    assert!(trackers[0]["version"].as_str().unwrap().starts_with("shoal "), "{}", trackers[0]);
    assert!(trackers[1]["absent"].as_str().unwrap().contains("WebTorrent"), "{}", trackers[1]);
    assert_eq!(
        (&trackers[2]["is_ceiling"], &trackers[2]["absent"]),
        (&true.into(), &serde_json::Value::Null)
    );

    let measured = round(&result, "shoal-mmsg");
    assert_eq!(measured["failure"], serde_json::Value::Null, "{measured:#}");
    assert_eq!(measured["fill"]["responses"]["announce"], 200);
    assert_eq!(measured["load"]["wrong"]["own_address"], 0);
    for report in ["load", "latency"] {
        for kind in ["connect", "announce"] {
            assert!(
                measured[report]["responses"][kind].as_u64().unwrap() > 10,
                "{report} {kind}: {measured:#}"
            );
        }
    }
    let usage = &measured["usage"];
    assert!(
        usage["exact_s"].as_f64().unwrap() > 0.0 && usage["elapsed_s"].as_f64().unwrap() > 0.2,
        "{usage}"
    );
    assert!(measured["resident_filled_bytes"].as_u64() >= measured["resident_before_bytes"].as_u64());
    assert!(round(&result, "echo-mmsg")["fill"].is_null());

    let files = ["README.md", "index.html", "results.json", "plots/throughput.svg"];
    for file in files.into_iter().chain(["configurations/shoal-mmsg.txt", "configurations/echo-mmsg.txt"]) {
        assert!(fs::metadata(folder.join(file)).unwrap().len() > 0, "{file}");
    }
    let configuration = fs::read_to_string(folder.join("configurations/shoal-mmsg.txt")).unwrap();
    assert!(
        configuration.contains("io = \"mmsg\"") && configuration.contains("count = 1"),
        "{configuration}"
    );
}

#[test]
fn an_echo_replies_as_long_as_shoal_did() {
    let laboratory = Laboratory::new();
    let shoal = tools::shoal().unwrap().display();
    // With a single torrent and only leechers, every announce gets as many peers as it asks for.
    let (output, _, result) = laboratory.compare(&format!(
        "--trackers echo-mmsg,shoal-mmsg --program shoal-mmsg={shoal} --torrents 1 --seeders 0 --numwant 7 --latency-rate 0"
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    for tracker in ["shoal-mmsg", "echo-mmsg"] {
        let round = round(&result, tracker);
        assert_eq!(round["load"]["announce_reply_bytes"], 62.0, "{round:#}");
        assert!(round["latency"].is_null());
    }
}

#[test]
fn trackers_are_compared_over_virtual_interfaces() {
    let laboratory = Laboratory::new();
    let shoal = tools::shoal().unwrap().display();
    let (output, _, result) = laboratory.compare(&format!(
        "--net veth --trackers shoal-mmsg,echo-mmsg,echo-xdp --program shoal-mmsg={shoal} --latency-rate 0"
    ));
    assert!(output.status.success(), "{}", stderr(&output));
    for tracker in ["shoal-mmsg", "echo-mmsg", "echo-xdp"] {
        let round = round(&result, tracker);
        assert_eq!(round["failure"], serde_json::Value::Null, "{round:#}");
        for kind in ["connect", "announce"] {
            assert!(round["load"]["responses"][kind].as_u64().unwrap() > 10, "{round:#}");
        }
        assert_eq!(round["load"]["wrong"]["malformed"], 0, "{round:#}");
        assert!(round["usage"]["receive_s"].as_f64().unwrap() > 0.0, "{round:#}");
    }
}

#[test]
fn a_report_is_written_again_from_the_raw_result() {
    let laboratory = Laboratory::new();
    let (output, folder, result) = laboratory.compare("--trackers echo-mmsg");
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("echo, the limit (mmsg)"), "{table}");
    let readme = fs::read(folder.join("README.md")).unwrap();
    fs::remove_file(folder.join("README.md")).unwrap();
    fs::remove_dir_all(folder.join("plots")).unwrap();
    let again = laboratory.run(&format!("--report {}", folder.display()));
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(fs::read(folder.join("README.md")).unwrap(), readme);
    assert!(folder.join("plots/throughput.svg").is_file());
    assert_eq!(crate::laboratory::read(&folder), result);
}
