//! From nothing to keys by the command line, and what it refuses.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{net::Ipv4Addr, time::Duration};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use rma_core::{addr::HostAddr, region::RegionId};
use rma_keys::{
    audit::log::{Log, LogConfig},
    catalog::{Region, Term},
    epoch::Life,
    io::{
        clock,
        server::{Answers, Limits, Server, ServerLoop},
    },
    policy::Policy,
    recorded::Recorded,
    secret::RegionSecret,
    service::{Service, ServiceConfig},
};

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
initiators = ["127.0.0.0/8"]
"#;

const SERVER: &str = "spiffe://example.org/kv/server";
const CLIENT: &str = "spiffe://example.org/kv/client/7";

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rmactl-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs `rmactl` here. Gives what it says, or the error that it ends with.
    fn rmactl(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rmactl"));
        let output = command.args(line.split(' ')).current_dir(&self.0).output().unwrap();
        let text = |octets| String::from_utf8(octets).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn refuses(&self, line: &str, says: &str) {
        let error = self.rmactl(line).unwrap_err();
        assert!(error.starts_with("rmactl: ") && error.contains(says), "{line}: {error}");
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.0.join(path)).unwrap().permissions().mode() & 0o777
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// A service with one region, as whoever the credentials in `dir` are of.
fn serve(dir: &Path, log: &Path) -> Server {
    let policy = Policy::parse(POLICY).unwrap();
    let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let now = clock::now();
    let responders = HostAddr::from(Ipv4Addr::LOCALHOST).into();
    let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
    let [announce_at, ends_at] = [3000, 3600].map(|it| now.boot + Duration::from_secs(it));
    let term = Term { announce_at, ends_at };
    let secret = RegionSecret::new(&mut [0x5a; 16]);
    service.publish(now, "kv/index".parse().unwrap(), region, &secret, term).unwrap();
    let log = Log::open(log, LogConfig::default()).unwrap();
    let answers = Answers(Arc::new(Mutex::new(Recorded::new(service, log))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let turns = ServerLoop::from_directory(listener, dir, answers, Limits::default()).unwrap();
    Server::start(turns).unwrap()
}

#[test]
fn from_nothing_to_keys_in_four_commands() {
    let scratch = Scratch::new("keys");
    scratch.rmactl("ca init --domain example.org --dir ca").unwrap();
    scratch.rmactl(&format!("ca issue --id {SERVER} --dir server")).unwrap();
    scratch.rmactl(&format!("ca issue --id {CLIENT} --dir client")).unwrap();
    let log = scratch.0.join("audit.log");
    let server = serve(&scratch.0.join("server"), &log);
    let service = server.address();
    let fetch = |expect: &str, region: &str, wait: u32| {
        let from = "--initiator 127.0.0.1 --pid 7";
        let fetch = format!("keys fetch --service {service} --expect {expect} --dir client {from}");
        format!("{fetch} --region {region} --wait {wait}")
    };
    let said = scratch.rmactl(&fetch(SERVER, "kv/index", 20)).unwrap();
    assert!(said.contains("of 4096 bytes at 127.0.0.1"), "{said}");
    assert!(said.contains("epoch 0707070707070707-1: keys for READ, 3"), "{said}");
    scratch.refuses(&fetch(SERVER, "kv/values", 20), "no such region, or not for this client");
    scratch.refuses(&fetch(CLIENT, "kv/index", 1), "client/7 was expected");
    drop(server);
    scratch.refuses(&fetch(SERVER, "kv/index", 1), "no answer in time from spiffe://example.org");
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.contains("\"event\":\"granted\"") && log.contains(CLIENT), "{log}");
}

#[test]
fn keys_are_their_owners_alone_and_nothing_is_written_over_unasked() {
    let scratch = Scratch::new("files");
    scratch.rmactl("ca init --domain example.org --dir ca").unwrap();
    let issue = format!("ca issue --id {CLIENT} --dir client --days 2");
    scratch.rmactl(&issue).unwrap();
    let modes = ["ca", "client", "ca/ca.key", "client/key.pem"].map(|it| scratch.mode(it));
    assert_eq!(modes, [0o700, 0o700, 0o600, 0o600]);
    let read = |name: &str| fs::read_to_string(scratch.0.join(name)).unwrap();
    let (root, key) = (read("ca/ca.key"), read("client/key.pem"));
    scratch.refuses("ca init --domain example.org --dir ca", "ca.pem is there already");
    scratch.refuses(&issue, "cert.pem is there already and is not written over; say --renew");
    assert_eq!((read("ca/ca.key"), read("client/key.pem")), (root, key.clone()));
    let said = scratch.rmactl(&format!("{issue} --renew")).unwrap();
    assert!(said.contains("client is spiffe://example.org/kv/client/7, until "), "{said}");
    assert_ne!(read("client/key.pem"), key);
    assert_eq!(scratch.mode("client/key.pem"), 0o600);
    let shown = scratch.rmactl("ca show client/cert.pem").unwrap();
    assert!(shown.contains(CLIENT) && shown.contains("certificate of an identity"), "{shown}");
    let shown = scratch.rmactl("ca show ca/ca.pem").unwrap();
    assert!(shown.contains("certificate of an authority"), "{shown}");
}

#[test]
fn a_renewal_that_cannot_be_written_whole_changes_nothing() {
    let scratch = Scratch::new("renewal");
    scratch.rmactl("ca init --domain example.org --dir ca").unwrap();
    let issue = format!("ca issue --id {CLIENT} --dir client");
    scratch.rmactl(&issue).unwrap();
    let read = || {
        let names = ["key.pem", "cert.pem", "bundle.pem"].map(|it| format!("client/{it}"));
        names.map(|it| fs::read_to_string(scratch.0.join(it)).unwrap())
    };
    let before = read();
    for in_the_way in ["cert.pem.new", "bundle.pem.new"] {
        let in_the_way = scratch.0.join("client").join(in_the_way);
        fs::create_dir(&in_the_way).unwrap();
        scratch.refuses(&format!("{issue} --renew"), "cannot write client/");
        assert_eq!(read(), before, "{}", in_the_way.display());
        fs::remove_dir(&in_the_way).unwrap();
        let left = fs::read_dir(scratch.0.join("client")).unwrap().count();
        assert_eq!(left, 3, "no .new is left");
    }
    // An obstacle to a name itself is found when others have been put in their places.
    let bundle = scratch.0.join("client/bundle.pem");
    fs::rename(&bundle, scratch.0.join("bundle.pem")).unwrap();
    fs::create_dir(&bundle).unwrap();
    scratch.refuses(&format!("{issue} --renew"), "cannot write client/bundle.pem");
    fs::remove_dir(&bundle).unwrap();
    fs::rename(scratch.0.join("bundle.pem"), &bundle).unwrap();
    assert_eq!(read(), before, "key and certificate go together as before");
    assert_eq!(scratch.mode("client/key.pem"), 0o600);
    // Files that a killed run has left are in nobody's way.
    for left in ["key.pem.new", "key.pem.old", "cert.pem.old"] {
        fs::write(scratch.0.join("client").join(left), "half").unwrap();
    }
    scratch.rmactl(&format!("{issue} --renew")).unwrap();
    assert_eq!(fs::read_dir(scratch.0.join("client")).unwrap().count(), 3);
    assert!(read()[..2].iter().zip(&before).all(|(now, before)| now != before));
}

#[test]
fn impossible_arguments_are_refused_with_the_reason() {
    let scratch = Scratch::new("refused");
    scratch.refuses("ca init --domain Example.org --dir ca", "'E' at octet 9");
    scratch.refuses("ca init --domain a/b --dir ca", "no trust domain");
    scratch.refuses(&format!("ca issue --id {CLIENT} --dir x"), "cannot read ca/ca.pem");
    scratch.rmactl("ca init --domain example.org --dir ca").unwrap();
    scratch.refuses("ca issue --id spiffe://b.org/a --dir x", "is not of example.org");
    scratch.refuses("ca issue --id spiffe://example.org --dir x", "no path");
    scratch.rmactl("ca init --domain example.org --dir other").unwrap();
    fs::copy(scratch.0.join("other/ca.key"), scratch.0.join("ca/ca.key")).unwrap();
    scratch.refuses(&format!("ca issue --id {CLIENT} --dir x"), "is not the key of ca.pem");
    assert!(!scratch.0.join("x").exists());
    scratch.refuses("ca show ca/ca.key", "holds no certificate");
}

#[test]
fn the_rule_that_decides_is_told() {
    let scratch = Scratch::new("explain");
    fs::write(scratch.0.join("policy.toml"), POLICY).unwrap();
    let explain = "keys explain --policy policy.toml --address 127.0.0.1";
    let said = scratch.rmactl(&format!("{explain} --id {CLIENT} --region kv/index")).unwrap();
    assert!(said.starts_with("allowed by allow 1 (line 2) for 86400 s"), "{said}");
    let write = format!("{explain} --id {CLIENT} --region kv/index --op read --op write");
    assert!(scratch.rmactl(&write).unwrap().starts_with("denied: "));
    let away = format!("{explain} --id {CLIENT} --region kv/index --initiator 192.0.2.1");
    assert!(scratch.rmactl(&away).unwrap().starts_with("denied: "));
    let no_op = format!("{explain} --id {CLIENT} --region kv/index --op fly");
    scratch.refuses(&no_op, "\"fly\" is no type of op");
    scratch.refuses(&format!("{explain} --id {CLIENT} --region kv/../x"), "no name of a region");
    fs::write(scratch.0.join("policy.toml"), "").unwrap();
    scratch.refuses(&format!("{explain} --id {CLIENT} --region kv/x"), "the policy is empty");
}

#[test]
fn packages_get_man_pages_and_completions_of_what_people_see() {
    let scratch = Scratch::new("generate");
    scratch.rmactl("generate man --out out").unwrap();
    scratch.rmactl("generate completions --shell fish --out out").unwrap();
    let read = |name: &str| fs::read_to_string(scratch.0.join("out").join(name)).unwrap();
    let page = read("rmactl-keys-fetch.1").replace("\\-", "-");
    let help = scratch.rmactl("keys fetch --help").unwrap();
    let lines = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let options: Vec<&str> = lines.filter_map(|line| line.split([' ', '=']).next()).collect();
    assert!(options.contains(&"expect"), "{help}");
    for option in options {
        assert!(page.contains(&format!("--{option}")), "{option}");
        assert!(read("rmactl.fish").contains(option), "{option}");
    }
    assert!(!read("rmactl.1").contains("generate"));
    scratch.refuses("generate man --out out/rmactl.1", "cannot write out/rmactl.1");
}
