//! Two hosts from nothing to a verified read in five commands, as README has them: processes on
//! loopback, with the policy that is in git.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::net::Ipv4Addr;
use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use rma_lab::{Scratch, udp_port_is_unused};

/// `rmactl`, beside `rma-bench`: built, as a test of one package builds no other's programs.
fn rmactl() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_rma-bench")).with_file_name("rmactl");
    let folder = beside.parent().unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "rmactl", "--profile", profile, "--target-dir"]);
    assert!(build.arg(folder.parent().unwrap()).status().unwrap().success());
    beside
}

/// A running server, killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Where the commands are run, and between which addresses.
struct Lab {
    scratch: Scratch,
    rmactl: PathBuf,
    keys: String,
    port: String,
}

impl Lab {
    fn new() -> Self {
        // Below those that the kernel hands out.
        let mut ports = (0..20_000).map(|it| 12_000 + (std::process::id() * 41 + it) % 20_000);
        let port = ports.find(|&it| udp_port_is_unused(it as u16).unwrap()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let keys = listener.local_addr().unwrap().to_string();
        Self { scratch: Scratch::new(), rmactl: rmactl(), keys, port: port.to_string() }
    }

    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = Command::new(program);
        command.args(line.split(' ')).current_dir(self.scratch.path());
        command
    }

    fn rmactl(&self, line: &str) {
        let output = self.command(&self.rmactl, line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn bench(&self, line: &str) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_rma-bench")), line)
    }

    /// Serves until it is dropped.
    fn serve(&self, more: &str) -> Server {
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/policy.toml");
        let Self { keys, port, .. } = self;
        let line = format!(
            "serve --udp 127.0.0.2 --op read,write --keys {keys} --id server --policy {policy} \
             --port {port} --region-len 1000000{more}"
        );
        let mut server = Server(
            self.bench(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        );
        let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines();
        // It ends by itself if something is wrong.
        if !said.any(|it| it.unwrap().contains("stop      with Ctrl-C")) {
            let mut error = String::new();
            server.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("the server has ended: {error}");
        }
        server
    }

    fn client(&self, command: &str, expect: &str, more: &str) -> Output {
        let Self { keys, port, .. } = self;
        let line = format!(
            "{command} --udp 127.0.0.1 --keys {keys} --expect spiffe://example.org/{expect} \
             --id client --port {port}{more}"
        );
        self.bench(&line).output().unwrap()
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn from_nothing_to_a_verified_read_in_five_commands() {
    let lab = Lab::new();
    lab.rmactl("ca init --domain example.org --dir ca");
    lab.rmactl("ca issue --id spiffe://example.org/server --dir server");
    lab.rmactl("ca issue --id spiffe://example.org/client --dir client");
    let server = lab.serve("");
    let few = " --verify 500 -n 500";
    let output = lab.client("read-lat", "server", few);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("verified  500 reads from 127.0.0.2"), "{said}");
    assert!(said.contains("every byte right"), "{said}");

    let output = lab.client("write-lat", "server", few);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("all 1000000 bytes read back"), "{output:?}");

    // What is wrong is said, with its name.
    let refused = |output: Output, says: &str| {
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{error}");
    };
    refused(lab.client("read-lat", "server", " --region other/region"), "no key of other/region");
    refused(lab.client("read-lat", "other", few), "spiffe://example.org/server");
    drop(server);
    refused(lab.client("read-lat", "server", few), "cannot connect: connection refused");

    // Another life: another key, and the same command.
    let _server = lab.serve(" --rotate 3600");
    let output = lab.client("read-lat", "server", &format!("{few} --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verified_reads"], &report["count"]), (&500.into(), &500.into()));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let lab = Lab::new();
    for (line, says) in [
        ("serve --udp 127.0.0.2 --keys 127.0.0.1:7471", "--id <DIR>"),
        ("serve --udp 127.0.0.2", "--initiator <ADDRESS>"),
        ("serve --udp 127.0.0.2 --initiator 127.0.0.1 --keys 127.0.0.1:7471", "cannot be used"),
        ("read-lat --udp 127.0.0.2 --keys 127.0.0.1:7471 --id x", "--expect <IDENTITY>"),
        ("read-lat --udp 127.0.0.2 --expect example.org/x --keys 127.0.0.1:1 --id x", "spiffe://"),
        ("read-lat --udp 127.0.0.2 --region kv/index", "--keys <ADDRESS:PORT>"),
    ] {
        let output = lab.bench(line).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{line}: {error}");
    }
}
