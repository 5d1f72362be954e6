//! Puts over TLS, with a server of this process: who may, and what becomes of what is wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rma_core::region::{NicTag, RegionId, RegisteredRegion};
use rma_kv::{
    certificates,
    layout::{BUCKET_LEN, VALUE_LEN_MAX},
    puts::{CONNECTION_TIME, PutClient, PutFailed, PutServer},
    slabs::SLAB_LEN,
    store::{Store, Stored},
};
use rma_lab::Scratch;
use rma_shm::Region;
use rma_xdp::{Clock, TscClock};

const SERVER: &str = "spiffe://example.org/kv/server";
const WRITER: &str = "spiffe://example.org/kv/writer";
const READER: &str = "spiffe://example.org/kv/reader";
const FAR: &str = "spiffe://example.org/kv/far";

const POLICY: &str = r#"
[[allow]]
region = "kv/puts"
identity = "spiffe://example.org/kv/writer"
ops = ["write"]
initiators = ["127.0.0.0/8"]

[[allow]]
region = "kv/puts"
identity = "spiffe://example.org/kv/far"
ops = ["write"]
initiators = ["192.0.2.0/24"]
"#;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

fn region(len: usize) -> RegisteredRegion {
    let memory = Arc::new(Region::new(len).unwrap());
    RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1))
}

fn server(
    directory: &Path,
    credentials: &Path,
    connection_time: Duration,
) -> (std::net::SocketAddr, Arc<Mutex<Store>>) {
    let policy = directory.join("policy.toml");
    fs::write(&policy, POLICY).unwrap();
    let values = region(4 * SLAB_LEN as usize);
    let store = Store::new(region(64 * BUCKET_LEN), values, Duration::ZERO);
    let store = Arc::new(Mutex::new(store));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let credentials = credentials.to_owned();
    let server = PutServer { credentials, policy, store: Arc::clone(&store), connection_time };
    // It ends with the process.
    thread::spawn(move || server.serve(&listener));
    (address, store)
}

#[test]
fn who_may_put_puts_and_others_are_told_why_not() {
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER, WRITER, READER, FAR]).unwrap();
    let (address, store) = server(scratch.path(), &ids[0], CONNECTION_TIME);
    let server = || SERVER.parse().unwrap();

    let mut writer = PutClient::new(address, server(), &ids[1]);
    assert_eq!(writer.put(b"a", b"one", 1).unwrap(), Stored::Yes);
    assert_eq!(writer.put(b"a", b"zero", 0).unwrap(), Stored::Stale);
    assert_eq!(writer.put(b"b", &vec![9; VALUE_LEN_MAX], 1).unwrap(), Stored::Yes);
    let too_long = writer.put(b"b", &vec![9; VALUE_LEN_MAX + 300], 2);
    assert!(matches!(too_long, Err(PutFailed::Answer { .. })), "{too_long:?}");
    assert_eq!(writer.put(b"c", b"after it", 1).unwrap(), Stored::Yes);
    assert_eq!(store.lock().unwrap().counters().puts, 3);

    let mut reader = PutClient::new(address, server(), &ids[2]);
    let denied = reader.put(b"a", b"two", 2);
    assert!(matches!(denied, Err(PutFailed::Denied { .. })), "{denied:?}");
    let denied = PutClient::new(address, server(), &ids[3]).put(b"a", b"two", 2);
    assert!(matches!(denied, Err(PutFailed::Denied { .. })), "from another address: {denied:?}");
    let mut misled = PutClient::new(address, READER.parse().unwrap(), &ids[1]);
    let misled = misled.put(b"a", b"two", 2);
    assert!(matches!(misled, Err(PutFailed::Io { .. })), "it is another server: {misled:?}");
    let other = Scratch::new();
    let stranger = certificates::issue(other.path(), &[WRITER]).unwrap();
    let refused = PutClient::new(address, server(), &stranger[0]).put(b"a", b"two", 2);
    assert!(matches!(refused, Err(PutFailed::Io { .. })), "of another root: {refused:?}");
    assert_eq!(store.lock().unwrap().counters().puts, 3);
}

#[test]
fn a_stranger_that_drips_octets_is_gone_when_its_time_is_over() {
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER]).unwrap();
    let (address, _) = server(scratch.path(), &ids[0], Duration::from_millis(500));
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // A record of a handshake, of 16384 octets; each of them comes well before patience ends.
    stranger.write_all(&[22, 3, 1, 0x40, 0]).unwrap();
    let clock = TscClock::new();
    loop {
        assert!(Duration::from_nanos(clock.now().as_nanos()) < PATIENCE, "it is there still");
        if stranger.write_all(&[0]).is_err() {
            break;
        }
        match stranger.read(&mut [0; 64]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(len) if len > 0 => {}
            Ok(_) | Err(_) => break,
        }
    }
}
