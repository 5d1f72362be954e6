//! Of processes: few descriptors, pauses, signals. Each is told as what it is, and none costs what
//! was measured or leaves what was written.

use super::*;

/// How long a machine stands still that is moved, or looked at by a debugger.
const PAUSE: Duration = Duration::from_millis(600);

/// Arguments of a server of these ops, over UDP on loopback.
struct Serving {
    folder: Folder,
    at: Loopback,
}

impl Serving {
    fn new() -> Self {
        Self { folder: Folder::new(), at: Loopback::unused() }
    }

    fn start(&self, ops: &str) -> Running {
        let grant = self.folder.grant();
        let _ = fs::remove_file(&grant);
        let Loopback { client, server, port } = &self.at;
        let args = ["serve", "--udp", server, "--initiator", client, "--port", port, "--op", ops];
        let more = ["--region-len", "1000000", "--grant", grant.to_str().unwrap()];
        let mut server = Running::start(bench(None, &[&args[..], &more].concat()));
        wait_for_grant(&mut server, &grant);
        server
    }

    fn client(&self, command: &str, more: &[&str]) -> Command {
        let grant = self.folder.grant();
        let args = [command, "--udp", &self.at.client, "--grant", grant.to_str().unwrap()];
        bench(None, &[&args[..], more].concat())
    }

    /// A client that has begun: it has said which device it has.
    fn begun(
        &self,
        command: &str,
        more: &[&str],
    ) -> (Running, impl Iterator<Item = String> + use<>) {
        let mut client = Running::start(self.client(command, more));
        let mut said =
            BufReader::new(client.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|it| it.contains("device")), "{command} has ended");
        (client, said)
    }
}

/// Stops a process for a moment, twice. It goes on for a shorter one.
fn pause(process: &Running) {
    for _ in 0..2 {
        for (signal, moment) in [(Signal::STOP, PAUSE), (Signal::CONT, PAUSE / 4)] {
            process.signal(signal);
            let clock = TscClock::new();
            wait_for("a moment", || Duration::from_nanos(clock.now().as_nanos()) >= moment);
        }
    }
}

/// Returns the output of a client from now on until Ctrl-C ends it.
fn interrupted(client: Running, said: impl Iterator<Item = String>) -> (String, Output) {
    client.signal(Signal::INT);
    let said: Vec<String> = said.collect();
    (said.join("\n"), client.output())
}

/// As many ops as nobody waits for.
const ENDLESS: [&str; 4] = ["--verify", "500", "-n", "1000000000"];

/// A load that goes on until somebody ends it, and the ops that it needs.
const LOADS: [(&str, &[&str], &str); 9] = [
    ("read-lat", &[], "read,write,compare-swap,fetch-add"),
    ("write-lat", &[], "read,write,compare-swap,fetch-add"),
    ("atomic-lat", &[], "read,write,compare-swap,fetch-add"),
    ("read-bw", &["-s", "64K", "-t", "4", "--span", "512K"], "read,write,compare-swap,fetch-add"),
    ("write-bw", &["--threads", "2", "--idle", "yield"], "read,write,compare-swap,fetch-add"),
    ("atomic-bw", &["-R", "2k"], "read,write,compare-swap,fetch-add"),
    ("mixed", &["--threads", "2", "--idle", "yield"], "read,write,compare-swap,fetch-add"),
    ("send-lat", &[], "send"),
    ("send-bw", &[], "send"),
];

#[test]
fn a_pause_of_either_side_ends_no_command_and_is_told() {
    let serving = Serving::new();
    let server = serving.start("read,write,compare-swap,fetch-add");
    for command in ["read-lat", "write-bw", "atomic-lat", "mixed", "verify"] {
        let more = if command == "verify" { &["--ops", "100"][..] } else { &ENDLESS };
        let (client, said) = match command {
            // It says nothing before its first round.
            "verify" => {
                let mut client = Running::start(serving.client(command, more));
                let mut said =
                    BufReader::new(client.0.stdout.take().unwrap()).lines().map_while(Result::ok);
                assert!(said.any(|it| it.contains("round")), "{command} has ended");
                (client, Box::new(said) as Box<dyn Iterator<Item = String>>)
            }
            _ => {
                let (client, said) = serving.begun(command, more);
                (client, Box::new(said) as Box<dyn Iterator<Item = String>>)
            }
        };
        pause(&server);
        pause(&client);
        let (said, output) = interrupted(client, said);
        let error = text(&output.stderr);
        assert!(!error.contains("TIMEOUT"), "{command}: {error}");
        if command == "verify" {
            assert!(said.contains("restored   what was there"), "{said}{error}");
        } else {
            assert!(said.contains("paused  "), "{command}: {said}{error}");
            assert!(said.contains("partial  "), "{command}: {said}{error}");
            assert!(error.contains("interrupted"), "{command}: {error}");
        }
        // Whoever was interrupted has left what was there.
        assert_read(
            &serving.client("read-lat", &["--verify", "500", "-n", "10"]).output().unwrap(),
        );
    }
    drop(server);
    let server = serving.start("send");
    let (client, said) = serving.begun("send-lat", &["-n", "1000000000"]);
    pause(&server);
    pause(&client);
    let (said, output) = interrupted(client, said);
    assert!(said.contains("paused  ") && said.contains("partial  "), "{said}{output:?}");
}

#[test]
fn interrupted_json_says_so_and_has_what_was_measured() {
    let serving = Serving::new();
    let _server = serving.start("read,write");
    for command in ["read-lat", "write-lat"] {
        let more = [&ENDLESS[..], &["--json"]].concat();
        let mut client = Running::start(serving.client(command, &more));
        let said = client.0.stdout.take().unwrap();
        // There is nothing to see before its end: a signal finds it opening, or measuring.
        let clock = TscClock::new();
        wait_for("a moment", || Duration::from_nanos(clock.now().as_nanos()) >= PAUSE * 3);
        let (said, output) =
            interrupted(client, BufReader::new(said).lines().map_while(Result::ok));
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let Some(end) = said.lines().last() else { continue };
        let end: serde_json::Value = serde_json::from_str(end).unwrap();
        assert_eq!((&end["event"], &end["partial"]), (&"end".into(), &true.into()), "{said}");
    }
}

#[test]
fn a_load_whose_server_is_killed_ends_as_failed_and_says_so_to_programs_too() {
    // Each waits for its patience most of the time, so three of them wait together.
    let fails = |(command, load, ops): (&str, &[&str], &str)| {
        let serving = Serving::new();
        let server = serving.start(ops);
        let more = ["--verify", "100", "-D", "3600", "--patience", "1s", "--interval", "0.1"];
        let more = [&more[..], &["--json"], load].concat();
        let mut client = Running::start(serving.client(command, &more));
        let mut said =
            BufReader::new(client.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|it| it.contains("\"interval\"")), "{command} has ended");
        server.signal(Signal::KILL);
        let rest: Vec<String> = said.collect();
        let output = client.output();
        assert_eq!(output.status.code(), Some(1), "{command}: {rest:?} {output:?}");
        let end: serde_json::Value = serde_json::from_str(rest.last().unwrap()).unwrap();
        assert_eq!((&end["event"], &end["partial"]), (&"end".into(), &true.into()), "{end}");
        assert!(end["error"].as_str().unwrap().contains("TIMEOUT"), "{end}");
    };
    for loads in LOADS.chunks(3) {
        thread::scope(|scope| {
            for &load in loads {
                scope.spawn(move || fails(load));
            }
        });
    }
}

#[test]
fn a_writer_restores_what_it_found_though_nobody_reads_the_results() {
    let serving = Serving::new();
    let _server = serving.start("read,write");
    let more = ["--verify", "100", "-n", "100000", "--interval", "0.1"];
    let mut client = Running::start(serving.client("write-bw", &more));
    // It is told of the device, and leaves.
    let mut said = BufReader::new(client.0.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    drop(said);
    assert_eq!(client.output().status.code(), Some(141));
    assert_read(&serving.client("read-lat", &["--verify", "500", "-n", "10"]).output().unwrap());
}

#[test]
fn a_verification_whose_server_is_gone_tells_at_ctrl_c_what_it_has_verified() {
    for signal in [Signal::INT, Signal::TERM] {
        let serving = Serving::new();
        let server = serving.start("read,write");
        let mut verify = Running::start(serving.client("verify", &["--ops", "100"]));
        let mut said =
            BufReader::new(verify.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|it| it.contains("round")));
        server.signal(Signal::KILL);
        assert!(said.any(|it| it.contains("failing")));
        verify.signal(signal);
        let rest: Vec<String> = said.collect();
        let at = |text: &str| rest.iter().position(|it| it.trim_start().starts_with(text));
        let (verified, restoring) = (at("verified"), at("restoring"));
        assert!(verified.is_some() && verified < restoring, "{rest:?}");
        assert!(at("not restored").is_some(), "{rest:?}");
        assert!(!verify.output().status.success());
    }
}

#[test]
fn ctrl_c_a_second_time_while_bytes_are_restored_says_what_is_left_changed() {
    for command in ["write-lat", "write-bw", "mixed", "verify"] {
        let serving = Serving::new();
        let server = serving.start("read,write,compare-swap,fetch-add");
        let more: &[&str] = if command == "verify" {
            &["--ops", "100", "--json"]
        } else {
            &["--verify", "100", "-D", "3600", "--interval", "0.1", "--json"]
        };
        let mut client = Running::start(serving.client(command, more));
        let mut said =
            BufReader::new(client.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let begun = if command == "verify" { "\"round\"" } else { "\"interval\"" };
        assert!(said.any(|it| it.contains(begun)), "{command} has ended");
        server.signal(Signal::STOP);
        client.signal(Signal::INT);
        // Two signals at once would be one.
        let errors = BufReader::new(client.0.stderr.take().unwrap()).lines();
        let mut errors = errors.map_while(Result::ok);
        let is_told = match command {
            "verify" => said.any(|it| it.contains("restoring")),
            _ => errors.any(|it| it.contains("restoring what was")),
        };
        assert!(is_told, "{command}");
        client.signal(Signal::INT);
        let rest: Vec<String> = said.collect();
        let error = errors.collect::<Vec<_>>().join("\n");
        let status = client.0.wait().unwrap();
        server.signal(Signal::CONT);
        assert_eq!(status.code(), Some(130), "{command}: {error}");
        let end = rest.last().unwrap();
        if command == "verify" {
            assert!(end.contains("\"restored\":false,\"area\":[0,1000000]"), "{end}");
        } else {
            assert!(error.contains("some of its bytes 0 to 65536 hold"), "{command}: {error}");
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_link_that_goes_down_and_comes_up_again_ends_no_load_and_is_told() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let grant = folder.grant();
    let link = |state: &str| lab.b().ip(&["link", "set", "dev", Lab::INTERFACE, state]).unwrap();
    let mut server = None;
    let mut served = "";
    for (command, more, ops) in LOADS {
        if served != ops {
            drop(server.take());
            let _ = fs::remove_file(&grant);
            server = Some(serve_in(&lab, &grant, ops));
            served = ops;
        }
        let args = [command, "--interface", Lab::INTERFACE, "--grant", grant.to_str().unwrap()];
        let args = [&args[..], &["--verify", "100", "-D", "3600", "--interval", "0.1"], more];
        let mut client = Running::start(bench(Some(lab.a()), &args.concat()));
        let mut told =
            BufReader::new(client.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let flows = |it: &String| it.contains(" 0 not OK");
        assert!(told.any(|it| flows(&it)), "{command} has ended");
        link("down");
        assert!(told.any(|it| it.contains("not OK") && !flows(&it)), "{command} has ended");
        let clock = TscClock::new();
        wait_for("a moment", || Duration::from_nanos(clock.now().as_nanos()) >= PAUSE);
        link("up");
        assert!(told.any(|it| flows(&it) && !it.contains(" 0 ops/s")), "{command} has ended");
        client.signal(Signal::INT);
        let rest: Vec<String> = told.collect();
        let status = client.0.wait().unwrap();
        let mut said = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(130), "{command}: {said}{rest:?}");
        assert!(said.contains("paused  ") && said.contains("partial  "), "{command}: {said}");
        assert!(!rest.iter().any(|it| it.contains("not restored")), "{command}: {rest:?}");
    }
}

/// Servers that may have so few descriptors that they cannot be opened: each says which limit that
/// is. Returns how many could not.
fn few_descriptors(netns: Option<&Netns>, device: &[&str], more: &[&str]) -> usize {
    let folder = Folder::new();
    let grant = folder.grant();
    let mut refused = 0;
    for limit in 4..=40 {
        let args = ["serve", "--duration", "0", "--region-len", "65536", "--grant"];
        let args = [&args[..], &[grant.to_str().unwrap()], device, more].concat();
        let program = env!("CARGO_BIN_EXE_rma-bench");
        let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
        let mut command = match netns {
            None => Command::new("sh"),
            Some(netns) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", netns.name(), "sh"]);
                command
            }
        };
        let output = command.args(["-c", &script, program]).args(args).output().unwrap();
        let error = text(&output.stderr);
        // Not even started: the limit is the loader's affair.
        if output.status.success() || error.contains("shared libraries") {
            continue;
        }
        refused += 1;
        assert!(error.contains("ulimit -n"), "with {limit} descriptors: {error}");
        for wrong in ["chown", "repair the disk", "IVs could repeat", "or newer is needed"] {
            assert!(!error.contains(wrong), "with {limit} descriptors: {error}");
        }
    }
    refused
}

#[test]
fn a_server_over_udp_with_few_descriptors_names_the_limit() {
    let Loopback { client, server, port } = Loopback::unused();
    let device = ["--udp", &server, "--initiator", &client, "--port", &port];
    assert!(few_descriptors(None, &device, &[]) > 0);
    assert!(few_descriptors(None, &device, &["--metrics", "127.0.0.1:0"]) > 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_server_over_xdp_with_few_descriptors_names_the_limit() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let initiator = Lab::A_V4.to_string();
    let device = ["--interface", Lab::INTERFACE, "--initiator", &initiator];
    assert!(few_descriptors(Some(lab.b()), &device, &[]) > 5);
}
