//! The audit log on a disk that is really full: a file system of 64 KiB in memory, as root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use rma_core::{
    addr::{HostAddr, Pid},
    op::OpType,
    region::RegionId,
    time::Instant,
};
use rma_keys::{
    audit::log::{Log, LogConfig},
    catalog::{Region, Term},
    epoch::Life,
    message::{
        reply::{Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    recorded::Recorded,
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};
use rma_lab::Scratch;

/// The variable that names the file system, in the run that has one.
const PLACE: &str = "RMA_FULL_DISK";

const NAME: &str = "full_disk::no_key_is_given_that_a_full_disk_does_not_tell_of";

/// Nobody else sees what is mounted, and it goes with the run.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn no_key_is_given_that_a_full_disk_does_not_tell_of() {
    if let Some(place) = env::var_os(PLACE) {
        return fill(Path::new(&place));
    }
    let scratch = Scratch::new();
    let mounts = "mount -t tmpfs -o size=64k tmpfs \"$RMA_FULL_DISK\" && exec \"$0\" \"$@\"";
    let ran = Command::new("unshare")
        .args(["--mount", "--", "sh", "-c", mounts])
        .arg(env::current_exe().unwrap())
        .args([NAME, "--exact", "--ignored", "--nocapture"])
        .env(PLACE, scratch.path())
        .output()
        .unwrap();
    let text =
        [ran.stdout, ran.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(ran.status.success() && text.contains("it was full"), "{text}");
}

const HERE: [u8; 4] = [192, 0, 2, 1];

fn service() -> Service<Policy> {
    let policy = "[[allow]]\nregion = \"kv\"\nidentity = \"spiffe://a/client\"\nops = [\"read\"]";
    let policy = Policy::parse(policy).unwrap();
    let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let region =
        Region { responders: HostAddr::from(HERE).into(), id: RegionId::from_bits(5), len: 64 };
    let ends_at = Instant::from_nanos(u64::MAX / 2);
    let term = Term { announce_at: ends_at, ends_at };
    let secret = RegionSecret::new(&mut [1; 16]);
    service.publish(now(), "kv".parse().unwrap(), region, &secret, term).unwrap();
    service
}

fn now() -> Now {
    Now { boot: Instant::from_nanos(1), wall: WallTime::from_unix_millis(0) }
}

/// Asks once. Returns whether a key was given.
fn ask(recorded: &mut Recorded<Policy>) -> bool {
    let peer = Peer {
        identity: "spiffe://a/client".parse().unwrap(),
        serial: Serial::new(&[1]).unwrap(),
        not_after: WallTime::from_unix_millis(i64::MAX),
        address: HERE.into(),
    };
    let ops = OpSet::NONE.with(OpType::Read);
    let wanted = Wanted { name: "kv".parse().unwrap(), ops, have: None };
    let initiators = HostAddr::from(HERE).into();
    let request = Request { initiators, pid: Pid(7), regions: vec![wanted] };
    match Reply::decode(&recorded.handle(now(), &peer, &request.encode(1))).unwrap() {
        Reply::Answers(_) => true,
        Reply::Refused(Refusal::NotNow { .. }) => false,
        other => panic!("{other:?}"),
    }
}

/// The numbers of the events whose lines are whole.
fn sequences(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|it| serde_json::from_str(it).ok());
    lines.map(|it: serde_json::Value| it["sequence"].as_u64().unwrap()).collect()
}

fn fill(place: &Path) {
    let path: PathBuf = place.join("audit.log");
    let others = place.join("others");
    fs::write(&others, vec![b'x'; 40 << 10]).unwrap();
    let config = LogConfig { len_max: 12 << 10, files_max: 9, ..LogConfig::default() };
    let mut recorded = Recorded::new(service(), Log::open(&path, config).unwrap());
    let mut given = 0;
    while ask(&mut recorded) {
        given += 1;
        assert!(given < 1000, "it is never full");
    }
    println!("it was full after {given}");
    let all = |path: &Path| {
        let old = (1..=9).rev().map(|it| place.join(format!("audit.log.{it}")));
        old.chain([path.to_owned()]).flat_map(|it| sequences(&it)).collect::<Vec<u64>>()
    };
    // A record of each, and of nothing else. The first event was never written.
    assert_eq!(all(&path), (2..given + 2).collect::<Vec<_>>());
    assert!((0..50).all(|_| !ask(&mut recorded)), "as long as it is");
    assert_eq!(all(&path).len() as u64, given);
    assert_eq!(recorded.log().unwrap().counters().lost, 51);
    // Room again: it goes on, with a gap in the numbers where keys were asked for in vain.
    fs::remove_file(&others).unwrap();
    assert!(ask(&mut recorded));
    let all = all(&path);
    assert_eq!(all.last(), Some(&(given + 2 + 51)));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("}\n"), "{text}");
    // And a service that starts with what is there goes on as well.
    drop(recorded);
    let mut recorded = Recorded::new(service(), Log::open(&path, config).unwrap());
    assert!(ask(&mut recorded) && sequences(&path).ends_with(&[2]));
}
