//! `rma-bench` as people run it: processes, files, signals.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod surprises;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write, pipe},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use rma_lab::{Lab, LabConfig, Netns, udp_port_is_unused};
use rma_xdp::time::{Clock, TscClock};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of this test's own, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rma-processes-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn grant(&self) -> PathBuf {
        self.0.join("grant.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `rma-bench`, killed on drop.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it ends, and gives what it said.
    fn output(mut self) -> Output {
        let status = self.0.wait().unwrap();
        let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_end(&mut output.stdout).unwrap();
        }
        self.0.stderr.take().unwrap().read_to_end(&mut output.stderr).unwrap();
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bench(netns: Option<&Netns>, args: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_rma-bench");
    let mut command = match netns {
        None => Command::new(program),
        Some(netns) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", netns.name(), program]);
            command
        }
    };
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = TscClock::new();
    while !condition() {
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < PATIENCE, "{what}: waited for {waited:?}");
        thread::yield_now();
    }
}

/// Two addresses on loopback, this process's own, and a port that nobody has, there or elsewhere.
struct Loopback {
    client: String,
    server: String,
    port: String,
}

impl Loopback {
    fn unused() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = std::process::id();
        let own = [0x7f00_0000 | id << 1, 0x7f00_0000 | id << 1 | 1].map(Ipv4Addr::from);
        loop {
            // Below those that the kernel hands out. Tests that run at the same time begin
            // elsewhere.
            let port = 12_000 + (id * 37 + NEXT.fetch_add(1, Relaxed)) % 20_000;
            if udp_port_is_unused(port as u16).unwrap() {
                let [client, server] = own.map(|address| address.to_string());
                return Self { client, server, port: port.to_string() };
            }
        }
    }
}

fn wait_for_grant(server: &mut Running, grant: &Path) {
    wait_for("the server writes its grant", || {
        assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
        grant.exists()
    });
}

/// A server in `b` of a lab, over AF_XDP.
fn serve_in(lab: &Lab, grant: &Path, ops: &str) -> Running {
    let initiator = Lab::A_V4.to_string();
    let args = ["serve", "--interface", Lab::INTERFACE, "--initiator", &initiator, "--grant"];
    let args =
        [&args[..], &[grant.to_str().unwrap(), "--op", ops, "--region-len", "1000000"]].concat();
    let mut server = Running::start(bench(Some(lab.b()), &args));
    wait_for_grant(&mut server, grant);
    server
}

fn read_in(lab: &Lab, grant: &Path) -> Output {
    let args = ["read-lat", "--interface", Lab::INTERFACE, "--verify", "500", "-n", "500"];
    let args = [&args[..], &["--grant", grant.to_str().unwrap()]].concat();
    bench(Some(lab.a()), &args).output().unwrap()
}

fn assert_read(output: &Output) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("every byte right"), "{out}{err}");
}

/// Returns the only row of `--json`.
fn row(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{output:?}");
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert!(events.iter().all(|it| it["schema"] == "rma-bench/1"), "{events:?}");
    let names: Vec<&str> = events.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["start", "row", "end"]);
    events[1].clone()
}

/// Returns the output of `write-lat`, and of `read-lat` on the server's region after it.
fn write_and_read_back(host: &[&str], netns: Option<&Netns>, grant: &Path) {
    let run = |command: &str, more: &[&str]| {
        let args = [&[command, "--grant", grant.to_str().unwrap()], host, more].concat();
        bench(netns, &args).output().unwrap()
    };
    let write = run("write-lat", &["--verify", "500", "-n", "500", "-s", "4096"]);
    assert_read(&write);
    assert!(text(&write.stdout).contains("all 65536 bytes read back"), "{write:?}");
    // Ops, and calls of an executor, one way and both ways at once.
    let both = ["--both", "-s", "64,65536", "-n", "300", "--verify", "500"];
    for (command, more) in [("read-bw", &both[..]), ("write-bw", &both[1..])] {
        let output = run(command, more);
        assert_read(&output);
        assert!(text(&output.stdout).contains("all 1000000 bytes read back"), "{output:?}");
    }
    // Several threads, each at places of its own.
    for (size, cc) in [("64", &[][..]), ("65536", &["--cc", "fixed=8"])] {
        let more = ["--threads", "3", "--idle", "yield", "-n", "900", "--verify", "300", "--json"];
        let found = row(&run("write-bw", &[&more[..], &["-s", size], cc].concat()));
        assert_eq!((&found["load"]["threads"], &found["outcomes"]["OK"]), (&3.into(), &900.into()));
        assert_eq!(found["load"]["cc"], cc.last().map_or(serde_json::Value::Null, |&it| it.into()));
        assert_eq!(found["latency_us"]["count"], 900, "{found}");
    }
    let mixed = ["--ratio", "read=80,write=20", "-s", "8192", "-n", "300", "--span", "256K"];
    assert_read(&run("mixed", &mixed));
    // Also if it ends early: its first row does not fit on a disk that is full.
    let full = run("write-lat", &["--verify", "50", "-n", "50", "--csv", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1), "{full:?}");
    let fast = run("write-lat", &["--verify", "50", "-n", "50", "-R", "1000,2000M"]);
    assert_eq!(fast.status.code(), Some(2), "{fast:?}");
    // It restores what it found, so that the pattern is still there.
    assert_read(&run("read-lat", &["--verify", "500", "-n", "500"]));
    let row = row(&run("write-lat", &["--verify", "500", "-n", "500", "--json"]));
    assert_eq!((&row["verified"]["ops"], &row["latency_us"]["count"]), (&500.into(), &500.into()));
}

/// Returns whether the kernel says that something is attached to the interface.
fn attached(netns: &Netns) -> bool {
    netns.ip(&["link", "show", "dev", Lab::INTERFACE]).unwrap().contains("xdp")
}

#[test]
fn two_processes_read_over_udp_and_the_server_ends_with_ctrl_c() {
    let folder = Folder::new();
    let (grant, Loopback { client, server: address, port }) = (folder.grant(), Loopback::unused());
    let grant_arg = grant.to_str().unwrap();
    let serve = ["serve", "--udp", &address, "--initiator", &client, "--pid", "7"];
    let serve = [&serve[..], &["--port", &port, "--grant", grant_arg, "--seed", "5"]].concat();
    let mut server = Running::start(bench(None, &serve));
    wait_for_grant(&mut server, &grant);

    let read = ["read-lat", "--udp", &client, "--grant", grant_arg, "--verify", "500"];
    let output = bench(None, &[&read[..], &["-n", "500", "-s", "4096"]].concat()).output().unwrap();
    assert_read(&output);
    let json = bench(None, &[&read[..], &["-n", "500", "--json"]].concat()).output().unwrap();
    let row = row(&json);
    assert_eq!((&row["verified"]["ops"], &row["outcomes"]["OK"]), (&500.into(), &500.into()));
    let conditions = &row["conditions"];
    assert!(conditions["mtu"].as_u64().unwrap() >= 1280, "{row}");
    assert!(conditions["mode"].as_str().unwrap().contains("UDP"), "{row}");

    server.signal(Signal::INT);
    let output = server.output();
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("received") && !said.contains("dropped"), "{said}");
}

#[test]
fn two_processes_write_over_udp_and_read_back_every_byte() {
    let folder = Folder::new();
    let (grant, Loopback { client, server: address, port }) = (folder.grant(), Loopback::unused());
    let grant_arg = grant.to_str().unwrap();
    let serve = ["serve", "--udp", &address, "--initiator", &client, "--pid", "7"];
    let more = ["--port", &port, "--grant", grant_arg, "--op", "read,write"];
    let serve = [&serve[..], &more, &["--region-len", "1000000"]].concat();
    let mut server = Running::start(bench(None, &serve));
    wait_for_grant(&mut server, &grant);
    write_and_read_back(&["--udp", &client], None, &grant);
}

#[test]
fn two_processes_send_swap_and_add_over_udp() {
    let folder = Folder::new();
    let (grant, Loopback { client, server: address, port }) = (folder.grant(), Loopback::unused());
    let grant_arg = grant.to_str().unwrap();
    let start = |ops: &str| {
        let _ = fs::remove_file(&grant);
        let args = ["serve", "--udp", &address, "--initiator", &client, "--pid", "7", "--op", ops];
        let more = ["--port", &port, "--grant", grant_arg, "--region-len", "1000"];
        let mut server = Running::start(bench(None, &[&args[..], &more].concat()));
        wait_for_grant(&mut server, &grant);
        server
    };
    let run = |command: &str, more: &[&str]| {
        let args = [&[command, "--udp", &client, "--grant", grant_arg, "-n", "500"], more].concat();
        bench(None, &args).output().unwrap()
    };

    let server = start("send");
    let sent = row(&run("send-lat", &["-s", "4096", "--json"]));
    assert_eq!(sent["outcomes"]["OK"], 500, "{sent}");
    let output = run("send-bw", &[]);
    assert!(text(&output.stdout).contains("500 OK"), "{output:?}");
    let refused = run("read-lat", &[]);
    assert!(text(&refused.stderr).contains("READ is not granted"), "{refused:?}");
    server.signal(Signal::INT);
    let served = server.output();
    assert!(served.status.success(), "{served:?}");
    let said = text(&served.stdout);
    // Each of the three commands sends one more, to see whether the server answers. On a busy
    // machine some of all these come twice: as ops of their own, as the first ended with TIMEOUT.
    let (_, messages) = said.split_once("messages  ").unwrap();
    let came: u64 = messages.split(' ').next().unwrap().parse().unwrap();
    assert!(came >= 2 * 550 + 3 && messages.contains("every byte right"), "{said}");

    // Atomics restore what they change, so that the next command finds the pattern.
    let server = start("compare-swap,fetch-add,read");
    for op in ["COMPARE_SWAP", "FETCH_ADD"] {
        let found = row(&run("atomic-lat", &["-A", op, "--verify", "200", "--json"]));
        let (checked, load) = (&found["verified"], &found["load"]);
        assert_eq!((&checked["ops"], &load["size"]), (&200.into(), &8.into()), "{op}");
        assert_eq!((&found["outcomes"]["OK"], &load["op"]), (&500.into(), &op.into()));
    }
    assert_read(&run("read-lat", &["--verify", "200"]));
    let output = run("atomic-bw", &["--verify", "200"]);
    assert!(text(&output.stdout).contains("every word right"), "{output:?}");
    drop(server);

    let both = ["serve", "--udp", &address, "--initiator", &client, "--op", "send,read"];
    let output = bench(None, &[&both[..], &["--grant", grant_arg]].concat()).output().unwrap();
    assert!(text(&output.stderr).contains("give send alone"), "{output:?}");
}

/// The next event of a `verify` that is `wanted`. Rounds may end meanwhile.
fn event(said: &mut impl Iterator<Item = String>, wanted: &str) -> serde_json::Value {
    let mut events = said.map(|line| serde_json::from_str(&line).unwrap());
    let found = events.find(|event: &serde_json::Value| event["event"] == wanted);
    found.unwrap_or_else(|| panic!("it ended without {wanted}"))
}

#[test]
fn verification_lives_through_a_restart_and_rotations_and_sees_what_is_wrong() {
    let folder = Folder::new();
    let (grant, Loopback { client, server: address, port }) = (folder.grant(), Loopback::unused());
    let (served, grant) = (folder.0.join("served.json"), grant.to_str().unwrap());
    let serve = |seed| {
        let args =
            ["serve", "--udp", &address, "--initiator", &client, "--pid", "7", "--seed", seed];
        let more = ["--port", &port, "--op", "read,write,rekey", "--region-len", "100000"];
        let args = [&args[..], &more, &["--grant", served.to_str().unwrap()]].concat();
        // The grant tells that it serves: the one of its last life must not.
        let _ = fs::remove_file(&served);
        let mut server = Running::start(bench(None, &args));
        wait_for_grant(&mut server, &served);
        // Carried over, in one piece.
        fs::copy(&served, format!("{grant}.new")).unwrap();
        fs::rename(format!("{grant}.new"), grant).unwrap();
        server
    };
    let server = serve("5");
    let args = ["verify", "--udp", &client, "--grant", grant, "--ops", "100"];
    let until = |more: &[&str]| bench(None, &[&args[..], more].concat());
    let mut verify = Running::start(until(&["--rekey", "--json"]));
    let mut said = BufReader::new(verify.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(event(&mut said, "open")["device"].as_str().unwrap().contains("UDP"));
    assert_eq!(event(&mut said, "round")["compared"], 100_000);
    drop(server);
    event(&mut said, "failing");
    let server = serve("6");
    assert_eq!(event(&mut said, "regranted")["region"], "fresh");
    event(&mut said, "round");
    verify.signal(Signal::INT);
    let end = event(&mut said, "end");
    assert!(verify.output().status.success());
    let count = |name: &str| end[name].as_u64().unwrap();
    assert!(count("reads") > 0 && count("writes") > 0 && count("rekeys") > 1, "{end}");
    assert_eq!(count("regrants"), 1);

    // The pattern is there again, and the grant is the one for the last key.
    let output = until(&["--rounds", "2"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("every byte right"), "{output:?}");

    // Whoever writes there is found out.
    let write = ["write-lat", "--udp", &client, "--grant", grant, "--verify", "0", "-n", "100"];
    assert!(bench(None, &write).output().unwrap().status.success());
    let output = until(&["--rounds", "1"]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("not what it should be"), "{output:?}");
    drop(server);

    // Nobody answers any longer.
    let output = until(&["--rounds", "1", "--patience", "1"]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains(&address), "{output:?}");
}

#[test]
fn an_op_that_is_not_granted_is_refused_before_anything_is_sent() {
    let folder = Folder::new();
    let (grant, Loopback { client, server: address, port }) = (folder.grant(), Loopback::unused());
    let grant_arg = grant.to_str().unwrap();
    let pairs = [("read", "write-lat"), ("write", "read-lat"), ("write", "write-lat")];
    for (op, command) in pairs.into_iter().chain([("read", "verify"), ("write", "verify")]) {
        let serve = ["serve", "--udp", &address, "--initiator", &client, "--pid", "7"];
        let serve = [&serve[..], &["--port", &port, "--grant", grant_arg, "--op", op]].concat();
        let mut server = Running::start(bench(None, &serve));
        wait_for_grant(&mut server, &grant);
        let args = [command, "--udp", &client, "--grant", grant_arg];
        let refused = bench(None, &args).output().unwrap();
        assert!(!refused.status.success(), "{refused:?}");
        // Of a writer, that it cannot read back; of the others, what they are for.
        let missing = match (op, command) {
            ("write", _) => "READ is not granted",
            _ => "WRITE is not granted",
        };
        assert!(text(&refused.stderr).contains(missing), "{refused:?}");
        assert!(text(&refused.stderr).contains("--op"), "{refused:?}");
        if (op, command) == ("write", "write-lat") {
            let unverified = [&args[..], &["--verify", "0", "-n", "500"]].concat();
            let output = bench(None, &unverified).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(text(&output.stdout).contains("verified  nothing"), "{output:?}");
        }
        drop(server);
        fs::remove_file(&grant).unwrap();
    }
}

#[test]
fn arguments_that_cannot_work_are_refused_with_the_next_step() {
    let folder = Folder::new();
    let grant = folder.grant();
    let grant = grant.to_str().unwrap();
    let refused = |args: &[&str]| {
        let output = bench(None, args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        text(&output.stderr)
    };
    for (engines, says) in [
        (&["0"][..], "0 engines were asked for; a host has 1 to 32: ask for one of these"),
        (&["33"], "33 engines were asked for; a host has 1 to 32"),
        (&["two"], "give a number, 1 to 32, or per-queue"),
        (&["2"], "2 engines were asked for, and a host over UDP has one"),
        (&["2", "--cores", "0"], "names 1 cores, and there are 2 threads to pin: engines"),
    ] {
        let args = [&["serve", "--udp", "127.0.0.1", "--engines"][..], engines].concat();
        let error = refused(&args);
        assert!(error.contains(says), "{error}");
    }
    let no_device = refused(&["serve", "--initiator", "127.0.0.1"]);
    assert!(no_device.contains("--interface") && no_device.contains("--udp"), "{no_device}");
    for nobody in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"] {
        let serve = ["serve", "--udp", "127.0.0.1", "--grant", grant, "--initiator", nobody];
        let error = refused(&serve);
        assert!(error.contains(nobody) && error.contains("not the address of one host"), "{error}");
    }
    let name = refused(&["serve", "--udp", "127.0.0.1", "--initiator", "localhost"]);
    assert!(name.contains("localhost") && name.contains("192.0.2.1"), "{name}");
    let no_file = refused(&["read-lat", "--udp", "127.0.0.1", "--grant", grant]);
    assert!(no_file.contains("grant.json"), "{no_file}");
    let size = refused(&["read-lat", "--udp", "127.0.0.1", "--size", "64,4194305"]);
    assert!(size.contains("4194305"), "{size}");
    let not_here =
        refused(&["serve", "--udp", "192.0.2.250", "--initiator", "192.0.2.1", "--grant", grant]);
    assert!(not_here.contains("192.0.2.250"), "{not_here}");
    let nameless =
        refused(&["serve", "--interface", "nosuch0", "--initiator", "192.0.2.1", "--grant", grant]);
    assert!(nameless.contains("nosuch0"), "{nameless}");
    let serve = ["serve", "--udp", "127.0.0.1", "--initiator", "127.0.0.2", "--grant", grant];
    for (cores, says) in [
        ("9999", "core 9999 is not this process's, which may use"),
        ("0,1", "names 2 cores, and there is one thread to pin"),
        ("0,0", "core 0 is named twice"),
        ("1-", "is no list of cores"),
    ] {
        let error = refused(&[&serve[..], &["--duration", "1", "--cores", cores]].concat());
        assert!(error.contains(says), "{cores}: {error}");
    }
    let load = ["write-bw", "--udp", "127.0.0.1", "--grant", grant];
    for (more, says) in [
        ("--threads 0", "not in 1..=64"),
        ("--threads 64 -t 4096", "64 threads with 4096 ops under way each need 262144 command"),
        ("--threads 3 -n 2", "--iters 2 is less than an op for each of 3 threads"),
        ("--cc nonsense -s 1M", "is no congestion control: give aimd, swift"),
        ("--cc fixed=0 -s 1M", "fixed=N with a window of 1 to 64 ops"),
        ("--cc fixed=1e9 -s 1M", "fixed=N with a window of 1 to 64 ops"),
        ("--cc aimd=3 -s 1M", "is no congestion control"),
        ("--cc swift -s 64,4K", "--cc is for ops above 4K"),
        ("--timeout 1us", "is no timeout: give 3us to 3600s"),
        ("--timeout 2h", "is no timeout"),
        ("--timeout 3601s", "is no timeout"),
        ("--patience 0", "is no time: give seconds above 0"),
        ("--numa 0", "possible values: auto"),
        ("--seed 3", "--seed is for keys of SERVER, and none is named"),
        ("--port 3", "--port is for keys of SERVER"),
    ] {
        let more: Vec<&str> = more.split(' ').collect();
        let output = bench(None, &[&load[..], &more].concat()).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {error}");
        assert!(error.contains(says) && !error.contains("   them"), "{more:?}: {error}");
    }
    assert!(!Path::new(grant).exists(), "no grant without a server");
}

#[test]
fn a_demo_without_privileges_shows_verified_ops_and_rotations_over_udp() {
    let Loopback { port, .. } = Loopback::unused();
    let args = ["demo", "--udp", "--port", &port, "--verify", "500", "--count", "500", "--json"];
    let output = bench(None, &[&args[..], &["--rotations", "20"]].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["verified"]["reads"], &json["verified"]["writes"]),
        (&500.into(), &500.into())
    );
    assert_eq!(json["verified"]["compared"], 64 << 20);
    let rotations = json["rotations"].as_array().unwrap();
    assert_eq!(rotations.len(), 4);
    for kind in rotations {
        assert_eq!(kind["rotations"], 20);
        assert!(kind["failed_ops"].as_u64() >= Some(20), "each rotation is seen: {kind}");
    }
    assert_eq!(json["read64_over_floor"], serde_json::Value::Null, "not claimed");
}

/// How many network namespaces a process has made and not removed.
fn namespaces_of(id: u32) -> usize {
    let mine = format!("-{id}-");
    let names = fs::read_dir("/run/netns").into_iter().flatten();
    names
        .filter(|name| {
            name.as_ref().is_ok_and(|n| text(n.file_name().as_encoded_bytes()).contains(&mine))
        })
        .count()
}

/// Returns the output of a program whose standard output nobody reads.
fn unread(args: &[&str]) -> (Output, u32) {
    let (reader, writer) = pipe().unwrap();
    // Before the program starts: it may have said all before anything is done after that.
    drop(reader);
    let mut command = bench(None, args);
    let program = Running(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap());
    let id = program.0.id();
    (program.output(), id)
}

#[test]
fn a_program_whose_reader_leaves_ends_quietly() {
    let Loopback { port, .. } = Loopback::unused();
    let demo = ["demo", "--udp", "--port", &port, "--verify", "500", "--count", "500"];
    for args in [&demo[..], &[&demo[..], &["--json"]].concat()] {
        let (output, _) = unread(args);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(141), ""));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_demo_whose_reader_leaves_removes_everything() {
    let (output, id) = unread(&["demo", "--verify", "100000000"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(141), ""));
    assert_eq!(namespaces_of(id), 0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_processes_read_over_xdp_while_tcp_keeps_flowing() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let server = serve_in(&lab, &folder.grant(), "read");
    let listener = {
        let _inside = lab.b().enter().unwrap();
        TcpListener::bind((Lab::B_V4, 0)).unwrap()
    };
    let to = listener.local_addr().unwrap();
    let megabytes = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(b"all there").unwrap();
        bytes.len()
    });
    let mut stream = {
        let _inside = lab.a().enter().unwrap();
        TcpStream::connect(to).unwrap()
    };
    stream.write_all(&vec![7; 4 << 20]).unwrap();
    assert_read(&read_in(&lab, &folder.grant()));
    stream.write_all(&vec![7; 4 << 20]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!((megabytes.join().unwrap(), answer.as_str()), (8 << 20, "all there"));
    drop(server);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_line_that_serve_prints_reads_over_xdp_by_the_interface_of_the_way() {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let serve = ["serve", "--interface", Lab::INTERFACE, "--region-len", "1000000"];
    let mut server = Running::start(bench(Some(lab.b()), &serve));
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|it| it.starts_with("  there ")).unwrap();
    let mut words = line.split_whitespace();
    assert!(words.any(|it| it == env!("CARGO_BIN_EXE_rma-bench")), "{line}");
    let typed: Vec<_> = words.chain(["--verify", "500", "-n", "500"]).collect();
    assert_eq!(typed[..2], ["read-lat", &Lab::B_V4.to_string()], "{line}");
    let output = bench(Some(lab.a()), &typed).output().unwrap();
    assert_read(&output);
    assert!(text(&output.stdout).contains(&format!("AF_XDP on {}", Lab::INTERFACE)));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn two_processes_write_over_xdp_and_read_back_every_byte() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let _server = serve_in(&lab, &folder.grant(), "read,write");
    write_and_read_back(&["--interface", Lab::INTERFACE], Some(lab.a()), &folder.grant());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_xdp_mode_is_told_with_its_reason_and_can_be_asked_for() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let _server = serve_in(&lab, &folder.grant(), "read");
    for (more, told) in [
        (&[][..], "generic (faster on veth)"),
        (&["--backend", "auto"], "generic (faster on veth)"),
        (&["--backend", "xdp-native"], "native (as asked for)"),
        (&["--backend", "xdp-copy"], "native (as asked for)"),
        (&["--backend", "xdp-generic"], "generic (as asked for)"),
    ] {
        let grant = folder.grant();
        let host = ["read-lat", "--interface", Lab::INTERFACE, "--grant", grant.to_str().unwrap()];
        let read = |count: &[&str]| {
            bench(Some(lab.a()), &[&host[..], more, count].concat()).output().unwrap()
        };
        let output = read(&["--verify", "500", "-n", "500"]);
        assert_read(&output);
        let said = text(&output.stdout);
        assert!(said.contains(&format!("AF_XDP on {}: {told}, copy", Lab::INTERFACE)), "{said}");
        let json = read(&["--verify", "1", "-n", "1", "--json"]);
        assert_eq!(row(&json)["conditions"]["mode"], told);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn hosts_with_different_backends_understand_each_other() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let backends = ["xdp-native", "xdp-generic", "udp"];
    let grant = folder.grant();
    let grant = grant.to_str().unwrap();
    for server in backends {
        let _ = fs::remove_file(grant);
        let initiator = Lab::A_V4.to_string();
        let args = ["serve", "--interface", Lab::INTERFACE, "--backend", server, "--op"];
        let more = ["read,write", "--initiator", &initiator, "--grant", grant];
        let mut serving = Running::start(bench(Some(lab.b()), &[&args[..], &more].concat()));
        wait_for_grant(&mut serving, Path::new(grant));
        for client in backends {
            let args = ["write-lat", "--interface", Lab::INTERFACE, "--backend", client];
            let more = ["--grant", grant, "--verify", "200", "-n", "200"];
            let output = bench(Some(lab.a()), &[&args[..], &more].concat()).output().unwrap();
            assert_read(&output);
        }
    }
}

#[test]
fn kernel_udp_is_fallen_back_to_and_only_if_nothing_else_was_asked_for() {
    let (folder, Loopback { server: address, port, .. }) = (Folder::new(), Loopback::unused());
    let grant = folder.grant();
    let grant_arg = grant.to_str().unwrap();
    // No loopback is Ethernet.
    let initiator = ["--initiator", "127.0.0.1", "--grant", grant_arg, "--port", &port];
    let serve = [&["serve", "--udp", &address][..], &initiator].concat();
    let mut server = Running::start(bench(None, &serve));
    wait_for_grant(&mut server, &grant);
    let read = ["read-lat", "--interface", "lo", "--grant", grant_arg, "-n", "200"];
    let output = bench(None, &[&read[..], &["--verify", "200"]].concat()).output().unwrap();
    assert_read(&output);
    let said = text(&output.stderr);
    assert!(said.contains("fallback: kernel UDP") && said.contains("lo is not Ethernet"), "{said}");
    let output = bench(None, &[&read[..], &["--backend", "xdp"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("lo is not Ethernet"), "{output:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_demo_over_xdp_shows_writes_and_rotations_on_a_timeline() {
    let counts = ["--verify", "2000", "--count", "2000", "--rotations", "20"];
    let demo = bench(None, &[&["demo"], &counts[..]].concat()).output().unwrap();
    let out = text(&demo.stdout);
    assert!(demo.status.success(), "{demo:?}");
    for wanted in ["WRITE 64 B", "WRITE 4 KiB", "by the Rekey op", "other region", "X"] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn nothing_stays_attached_however_the_server_ends() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let server = serve_in(&lab, &folder.grant(), "read");
        assert!(attached(lab.b()));
        assert_read(&read_in(&lab, &folder.grant()));
        server.signal(signal);
        let output = server.output();
        assert_eq!(output.status.success(), signal != Signal::KILL, "{output:?}");
        wait_for("the program is detached", || !attached(lab.b()));
        fs::remove_file(folder.grant()).unwrap();
    }
    // And the next start succeeds.
    let _server = serve_in(&lab, &folder.grant(), "read");
    assert_read(&read_in(&lab, &folder.grant()));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_server_says_without_being_asked_what_becomes_of_its_interface() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let mut server = serve_in(&lab, &folder.grant(), "read");
    let (lines, said) = mpsc::channel();
    let stdout = BufReader::new(server.0.stdout.take().unwrap());
    // It ends with the server.
    thread::spawn(move || stdout.lines().try_for_each(|line| lines.send(line.unwrap())));
    let until = |text: &str| loop {
        let line = said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nothing like {text:?}"));
        if line.contains(text) {
            break line;
        }
    };
    let (a, b) = (lab.a(), lab.b());
    b.ip(&["link", "set", "dev", Lab::INTERFACE, "name", "rail0"]).unwrap();
    until("interface rail0 is up; it was named rma0");
    a.ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
    until("interface rail0 is gone");
    let peer = ["type", "veth", "peer", "name", Lab::INTERFACE, "netns", a.name()];
    b.ip(&[&["link", "add", "rail0"][..], &peer].concat()).unwrap();
    b.ip(&["link", "set", "dev", "rail0", "up"]).unwrap();
    until("interface rail0 is detached: 192.0.2.2 cannot be used as a local address");
    // Both of its addresses.
    let v6 = format!("{}/{}", Lab::B_V6, Lab::V6_PREFIX);
    b.ip(&["addr", "add", &v6, "dev", "rail0", "nodad"]).unwrap();
    b.ip(&["addr", "add", "192.0.2.2/24", "dev", "rail0"]).unwrap();
    a.ip(&["link", "set", "dev", Lab::INTERFACE, "up"]).unwrap();
    until(", attached again: AF_XDP on rail0: ");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn interfaces_that_cannot_be_used_are_named_with_the_next_step() {
    let (lab, folder) = (Lab::new(&LabConfig::default()).unwrap(), Folder::new());
    let grant = folder.grant();
    let serve = |more: &[&str]| {
        let initiator = Lab::A_V4.to_string();
        let args = ["serve", "--interface", Lab::INTERFACE, "--initiator", &initiator, "--grant"];
        let args = [&args[..], &[grant.to_str().unwrap(), "--duration", "1"], more].concat();
        text(&bench(Some(lab.b()), &args).output().unwrap().stderr)
    };
    let server = serve_in(&lab, &folder.grant(), "read");
    let second = serve(&[]);
    assert!(second.contains("in use") || second.contains("attached"), "{second}");
    drop(server);

    lab.b().set_mtu(Lab::INTERFACE, 500).unwrap();
    let small = serve(&[]);
    assert!(small.contains("MTU 500") && small.contains("ip link set"), "{small}");
    lab.b().set_mtu(Lab::INTERFACE, 1500).unwrap();
    lab.b().ip(&["link", "set", "dev", Lab::INTERFACE, "down"]).unwrap();
    let down = serve(&[]);
    assert!(down.contains("down") && down.contains(Lab::INTERFACE), "{down}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn ctrl_c_in_mid_demo_removes_everything() {
    let demo = Running::start(bench(None, &["demo", "--verify", "100000000"]));
    let id = demo.0.id();
    wait_for("the demo makes its namespaces", || namespaces_of(id) == 2);
    demo.signal(Signal::INT);
    let output = demo.output();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(namespaces_of(id), 0);
}

#[test]
fn a_server_is_scraped_and_says_what_it_does_on_standard_error() {
    let (folder, Loopback { server: address, port, .. }) = (Folder::new(), Loopback::unused());
    let grant = folder.grant();
    let args = ["serve", "-vv", "--udp", &address, "--initiator", &address, "--port", &port];
    let more = ["--region-len", "4096", "--metrics", "127.0.0.1:0", "--grant"];
    let args = [&args[..], &more[..], &[grant.to_str().unwrap()]].concat();
    let mut server = Running::start(bench(None, &args));
    // Kept: the server ends when nobody reads what it prints.
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        Some(line.trim().strip_prefix("metrics   http://")?.strip_suffix("/metrics")?.to_owned())
    });
    let mut stream = TcpStream::connect(address.unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\nrma_engine_up{engine=\"0\"} 1\n"), "{answer}");
    server.signal(Signal::INT);
    let output = server.output();
    let said = text(&output.stderr);
    for event in ["metrics endpoint started", "host opened", "region registered", "grant made"] {
        assert!(said.contains(event), "{event}: {said}");
    }
}

#[test]
fn an_address_that_metrics_cannot_be_served_at_is_named() {
    let (folder, Loopback { server: address, port, .. }) = (Folder::new(), Loopback::unused());
    let grant = folder.grant();
    let args = ["serve", "--udp", &address, "--initiator", &address, "--port", &port];
    let more = ["--metrics", "192.0.2.1:9090", "--grant", grant.to_str().unwrap()];
    let output = bench(None, &[&args[..], &more[..]].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("192.0.2.1:9090"), "{said}");
    assert!(!grant.exists(), "nothing was promised");
}
