//! Two hosts from nothing to a verified read: in two commands by an invitation, as README has them,
//! and with certificates, as OPERATING has them and the policy that is in git. Processes on
//! loopback. And with several engines, pasted from OPERATING, in namespaces.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
};

use rma_lab::{Scratch, udp_port_is_unused};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

static RMACTL: LazyLock<PathBuf> = LazyLock::new(rmactl);

/// `rmactl`, beside `rma-bench`: built, as a test of one package builds no other's programs. The
/// whole workspace is named, so that nothing is compiled where its tests are built already.
fn rmactl() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_rma-bench")).with_file_name("rmactl");
    let folder = beside.parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut build = Command::new(env!("CARGO"));
    // They describe this package, and a build script that looks at them would build anew.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            build.env_remove(name);
        }
    }
    // Integration tests are built with the programs of their packages; this is one of `rmactl`.
    build.args(["test", "--quiet", "--no-run", "--workspace", "--test", "first_use"]);
    build.args(["--profile", profile, "--target-dir"]);
    assert!(build.arg(folder.parent().unwrap()).status().unwrap().success());
    beside
}

/// A running process, killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The namespaces and addresses of the commands.
struct Lab {
    scratch: Scratch,
    keys: String,
    port: String,
}

impl Lab {
    fn new() -> Self {
        // Below those that the kernel hands out, and not those of another lab of this process.
        static LABS: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id() * 41 + LABS.fetch_add(1, Relaxed) * 1000;
        let mut ports = (0..20_000).map(|it| 12_000 + (first + it) % 20_000);
        let port = ports.find(|&it| udp_port_is_unused(it as u16).unwrap()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let keys = listener.local_addr().unwrap().to_string();
        Self { scratch: Scratch::new(), keys, port: port.to_string() }
    }

    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = Command::new(program);
        command.args(line.split(' ')).current_dir(self.scratch.path());
        command.env_remove("RMA_BENCH_INVITE");
        command
    }

    fn rmactl(&self, line: &str) {
        let output = self.command(&RMACTL, line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn bench(&self, line: &str) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_rma-bench")), line)
    }

    /// Serves with certificates until it is dropped.
    fn serve(&self, more: &str) -> Process {
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/policy.toml");
        let Self { keys, port, .. } = self;
        let line = format!(
            "serve --udp 127.0.0.2 --op read,write --keys {keys} --id server --policy {policy} \
             --port {port} --region-len 1000000{more}"
        );
        self.start(&line).0
    }

    /// Serves to whoever has the code. Returns what is to be typed for that, as it is printed, with
    /// the address of loopback that clients of a test have.
    fn invite(&self, more: &str) -> (Process, String) {
        let Self { keys, port, .. } = self;
        let line =
            format!("serve --udp 127.0.0.2 --keys {keys} --port {port} --region-len 1000000{more}");
        let (server, said) = self.start(&line);
        assert!(said.iter().any(|it| it.contains("the code is a secret")), "{said:?}");
        let mut lines = said.iter();
        let typed = lines.find_map(|it| it.strip_prefix("  there     ")).unwrap();
        let (program, typed) = typed.split_once(' ').unwrap();
        assert_eq!(program, env!("CARGO_BIN_EXE_rma-bench"));
        (server, typed.replace("--udp ADDRESS", "--udp 127.0.0.1"))
    }

    /// Starts a server, and returns what it has said when it is ready.
    fn start(&self, line: &str) -> (Process, Vec<String>) {
        let mut server = Process(
            self.bench(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        );
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let is_ready = |it: &String| it.contains("stop      with Ctrl-C");
        let said: Vec<String> = lines.by_ref().take_while(|it| !is_ready(it)).collect();
        // It ends by itself if something is wrong.
        if said.iter().all(|it| !it.contains("  serving")) {
            let mut error = String::new();
            server.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("the server has ended: {error}");
        }
        (server, said)
    }

    fn client(&self, command: &str, expect: &str, more: &str) -> Output {
        self.client_command(command, expect, more).output().unwrap()
    }

    fn client_command(&self, command: &str, expect: &str, more: &str) -> Command {
        let Self { keys, port, .. } = self;
        let line = format!(
            "{command} --udp 127.0.0.1 --keys {keys} --expect spiffe://example.org/{expect} \
             --id client --port {port}{more}"
        );
        self.bench(&line)
    }

    /// Makes what both sides need.
    fn certificates(&self) {
        self.rmactl("ca init --domain example.org --dir ca");
        self.rmactl("ca issue --id spiffe://example.org/server --dir server");
        self.rmactl("ca issue --id spiffe://example.org/client --dir client");
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Asserts that a command was refused so.
fn refused(output: &Output, says: &str) {
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains(says), "{error}");
}

#[test]
fn from_nothing_to_a_verified_read_in_two_commands() {
    let lab = Lab::new();
    let (server, line) = lab.invite(" --seed 7 --region bench/other");
    let few = " -n 500";
    let run = |line: &str| lab.bench(&format!("{line}{few}")).output().unwrap();
    let output = run(&format!("{line} --verify 500"));
    assert!(output.status.success(), "{line}: {output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("verified  500 random ops with 127.0.0.2"), "{said}");
    for command in ["write-lat", "atomic-lat -A COMPARE_SWAP", "mixed", "read-bw", "send-lat"] {
        let output = run(&line.replace("read-lat", command));
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let output = lab.bench(&line.replace("read-lat", "verify --rounds 2 --ops 500"));
    let output = { output }.output().unwrap();
    assert!(output.status.success(), "{output:?}");

    // The code, where `ps` does not show it.
    let (before, code) = line.split_once(" --invite ").unwrap();
    let output = lab.bench(&format!("{before}{few}")).env("RMA_BENCH_INVITE", code).output();
    assert!(output.as_ref().unwrap().status.success(), "{output:?}");
    let mut client = lab.bench(&format!("{before} --invite -{few}"));
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    writeln!(client.stdin.take().unwrap(), "{}", code.to_lowercase()).unwrap();
    assert!(client.wait().unwrap().success());

    // The error says what to do.
    refused(&run(before), "give --invite with the code");
    let end = if code.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{before} --invite {}{end}", &code[..code.len() - 1]);
    refused(&run(&wrong), "a letter of the code is wrong");
    assert!(!text(&run(&wrong).stderr).contains(&code[..8]), "an error shows no code");
    let given = |option: &str| run(&format!("{line} {option}"));
    refused(&given("--region bench/region"), "serves no bench/region but bench/other");
    refused(&given("--seed 8"), "--seed 8, and `rma-bench serve` at");
    refused(&given("--port 1"), "leave out --port");
    assert!(given(&format!("--seed 7 --port {}", lab.port)).status.success());
    drop(server);
    refused(&run(&line), "start `rma-bench serve` there");
    let (_server, new) = lab.invite(" --op read");
    refused(&run(&line), "makes a code of its own");
    assert!(run(&new).status.success());
    refused(&run(&new.replace("read-lat", "write-lat")), "with --op read,write");
    refused(&run(&new.replace("read-lat", "send-lat")), "SEND is not served");
}

/// The namespaces of the commands in OPERATING, with names of this test's own. Deleted on drop.
struct Namespaces([String; 2]);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn from_nothing_to_a_verified_read_at_a_server_of_several_engines() {
    let page = fs::read_to_string("../docs/OPERATING.md").unwrap();
    let section = page.split("\n## ").find(|it| it.starts_with("Several engines\n")).unwrap();
    let names = ["one", "two"].map(|it| format!("rma-{it}-{}", std::process::id()));
    let pasted = |text: &str| {
        let text = text.replace("rma-one", &names[0]).replace("rma-two", &names[1]);
        let program = env!("CARGO_BIN_EXE_rma-bench");
        text.replace("sudo ", "").replace("target/release/rma-bench", program)
    };
    let mut blocks = section.split("```sh\n").skip(1).map(|it| it.split("```").next().unwrap());
    let (server, client) = (pasted(blocks.next().unwrap()), pasted(blocks.next().unwrap()));
    let _namespaces = Namespaces(names.clone());
    // In place of the shell, so that what ends the one ends the other.
    let (links, serve) = server.trim_end().rsplit_once('\n').unwrap();
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    };
    assert!(shell(links).status().unwrap().success());
    let more = shell(&serve.replace("--engines 2", "--engines 3")).output().unwrap();
    refused(&more, "each of 3 engines needs one of both: `ethtool -L rma0 combined 3`");
    let mut server = Process(shell(&format!("exec {serve}")).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<_> = lines.by_ref().take_while(|it| !it.contains("with Ctrl-C")).collect();
    for says in ["2 queue(s), 2 engines", "engine 0  queues 0", "engine 1  queues 1"] {
        assert!(said.iter().any(|it| it.contains(says)), "{said:?}");
    }
    let code = said.iter().find_map(|it| it.split(" --invite ").nth(1)).unwrap();
    let client = client.trim_end().replace("CODE", code);
    let output = shell(&format!("{client} -n 500 --verify 500")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("every byte right"), "{output:?}");
    kill_process(Pid::from_child(&server.0), Signal::INT).unwrap();
    let of_engine_0 = lines.find(|it| it.contains("engine 0  ")).unwrap();
    assert!(of_engine_0.contains("landed right (100.0 %), handed over 0"), "{of_engine_0}");
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn several_writers_and_a_reader_at_once_find_every_byte_of_their_own() {
    let lab = Lab::new();
    let (_server, line) = lab.invite("");
    let loads = ["write-lat", "write-bw", "mixed --ratio read=50,write=50", "read-bw"];
    let atomics = ["atomic-lat", "atomic-bw -A COMPARE_SWAP"];
    let clients = loads.into_iter().chain(atomics).zip(3..).map(|(load, host)| {
        let line = line.replace("read-lat", load);
        let line = line.replace("--udp 127.0.0.1", &format!("--udp 127.0.0.{host}"));
        let mut client = lab.bench(&format!("{line} --verify 500 -n 2000 -s 64"));
        if load.starts_with("atomic") {
            client = lab.bench(&format!("{line} --verify 500 -n 2000"));
        }
        client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    // All have been started before the first is waited for.
    let clients: Vec<_> = clients.collect();
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stdout).contains("verified  500 random ops"), "{output:?}");
    }
    // One that is killed restores nothing, and whoever has its lane next does not find that.
    let mut killed =
        lab.bench(&format!("{} --verify 0 -D 60", line.replace("read-lat", "write-bw")));
    let mut killed = Process(killed.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(killed.0.stdout.take().unwrap()).lines();
    assert!(said.any(|it| it.unwrap().contains("peer ")));
    kill_process(Pid::from_child(&killed.0), Signal::KILL).unwrap();
    killed.0.wait().unwrap();
    let output =
        lab.bench(&format!("{} --verify 500 -n 500", line.replace("read-lat", "atomic-lat")));
    let output = { output }.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    refused(
        &lab.bench(&format!("{} --span 2M", line.replace("read-lat", "write-lat")))
            .output()
            .unwrap(),
        "give less with --span",
    );
}

#[test]
fn from_nothing_to_a_verified_read_with_certificates() {
    let lab = Lab::new();
    lab.certificates();
    let server = lab.serve(" --audit log/of/keys");
    assert!(lab.scratch.path().join("log/of/keys").is_dir(), "it is made");
    let few = " --verify 500 -n 500";
    let output = lab.client("read-lat", "server", few);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("verified  500 random ops with 127.0.0.2"), "{said}");
    assert!(said.contains("every byte right"), "{said}");

    let output = lab.client("write-lat", "server", few);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("all 65536 bytes read back"), "{output:?}");

    // The service has a name as well.
    let by_name = Lab { keys: lab.keys.replace("127.0.0.1", "localhost"), ..lab };
    let output = by_name.client("read-lat", "server", few);
    assert!(output.status.success(), "{output:?}");
    let lab = Lab { keys: by_name.keys.replace("localhost", "127.0.0.1"), ..by_name };

    let output = lab.client("verify", "server", " --rounds 2 --ops 500");
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("in 2 rounds"), "{output:?}");

    // The error names what is wrong.
    refused(&lab.client("read-lat", "server", " --region other/region"), "serves no other/region");
    refused(&lab.client("read-lat", "other", few), "spiffe://example.org/server");
    drop(server);
    refused(&lab.client("read-lat", "server", few), "cannot connect: connection refused");

    // Another life: another key, and the same command.
    let _server = lab.serve(" --rotate 3600");
    let output = lab.client("read-lat", "server", &format!("{few} --json"));
    let said = text(&output.stdout);
    let events = said.lines().map(|it| serde_json::from_str(it).unwrap());
    let row: Value = { events }.find(|it: &Value| it["event"] == "row").unwrap();
    assert_eq!((&row["verified"]["ops"], &row["outcomes"]["OK"]), (&500.into(), &500.into()));
}

#[test]
fn verification_by_name_lives_through_rotations_and_a_restart() {
    let lab = Lab::new();
    lab.certificates();
    let server = lab.serve(" --rotate 1");
    let mut verify = lab.client_command("verify", "server", " --ops 100 --span 100K --json");
    let mut verify = Process(verify.stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(verify.0.stdout.take().unwrap()).lines();
    let mut said = said.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let mut until = |event: &str, is: &dyn Fn(&Value) -> bool| {
        let found = said.find(|it: &Value| it["event"] == event && is(it));
        found.unwrap_or_else(|| panic!("it ended without {event}"))
    };
    until("round", &|it| it["rekeys"] != 0);
    drop(server);
    until("failing", &|_| true);
    let _server = lab.serve(" --rotate 1");
    assert_eq!(until("regranted", &|_| true)["region"], "fresh");
    until("round", &|it| it["rekeys"] != 0);
    // It has a lane in this life as well: another writer is given other bytes.
    let writer = lab.client_command("verify", "server", " --rounds 3 --ops 500 --span 100K");
    let writer: Vec<String> = writer
        .get_args()
        .map(|it| it.to_str().unwrap().replace("127.0.0.1", "127.0.0.3"))
        .collect();
    let writer = writer.join(" ").replace("--keys 127.0.0.3", "--keys 127.0.0.1");
    let output = lab.bench(&writer).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    until("round", &|_| true);
    kill_process(Pid::from_child(&verify.0), Signal::INT).unwrap();
    assert_eq!(until("end", &|_| true)["regrants"], 1);
    assert!(verify.0.wait().unwrap().success());
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let lab = Lab::new();
    for (line, says) in [
        ("serve --udp 127.0.0.2 --keys 127.0.0.1:7471 --policy x", "--id <DIR>"),
        ("serve --udp 127.0.0.2 --grant-file x", "--initiator <ADDRESS>"),
        ("serve --udp 127.0.0.2 --initiator 127.0.0.1 --region kv/index", "cannot be used"),
        ("serve --initiator 127.0.0.1", "--interface NAME"),
        ("serve --udp 127.0.0.2 --initiator 127.0.0.1 --keys 127.0.0.1:7471", "cannot be used"),
        ("read-lat --udp 127.0.0.2 --keys 127.0.0.1:7471 --id x", "--expect <IDENTITY>"),
        ("read-lat --udp 127.0.0.2 --expect example.org/x --keys 127.0.0.1:1 --id x", "spiffe://"),
        ("read-lat --udp 127.0.0.2 --region kv/index", "SERVER"),
        ("read-lat 127.0.0.1 --udp 127.0.0.2 --invite 0", "a code has 27"),
        ("read-lat fe80::1 --udp 127.0.0.2 --invite -", "is link-local"),
        ("read-lat fe80::1%lo --udp 127.0.0.2 --invite -", "is link-local"),
        ("verify --udp 127.0.0.2 --rekey 127.0.0.1", "cannot be used"),
    ] {
        let output = lab.bench(line).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{line}: {error}");
    }
}

#[test]
fn a_command_that_is_still_opening_ends_at_once() {
    let lab = Lab::new();
    lab.certificates();
    // A key service that accepts and says nothing.
    let silent = TcpListener::bind(&lab.keys).unwrap();
    for command in ["read-lat", "write-bw", "send-lat", "atomic-lat", "mixed", "verify"] {
        let mut client = Process(lab.client_command(command, "server", "").spawn().unwrap());
        let _stream = silent.accept().unwrap();
        kill_process(Pid::from_child(&client.0), Signal::INT).unwrap();
        assert_eq!(client.0.wait().unwrap().code(), Some(130), "{command}");
    }
}
