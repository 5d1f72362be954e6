//! Puts over TLS, with a server of this process: who may, and what becomes of what is wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rma_core::region::{NicTag, RegionId, RegisteredRegion};
use rma_kv::{
    certificates,
    layout::{BUCKET_LEN, VALUE_LEN_MAX},
    puts::{PutClient, PutFailed, PutServer},
    slabs::SLAB_LEN,
    store::{Store, Stored},
};
use rma_lab::Scratch;
use rma_shm::Region;

const SERVER: &str = "spiffe://example.org/kv/server";
const WRITER: &str = "spiffe://example.org/kv/writer";
const READER: &str = "spiffe://example.org/kv/reader";

const POLICY: &str = r#"
[[allow]]
region = "kv/puts"
identity = "spiffe://example.org/kv/writer"
ops = ["write"]
"#;

fn region(len: usize) -> RegisteredRegion {
    let memory = Arc::new(Region::new(len).unwrap());
    RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1))
}

fn server(directory: &Path, credentials: &Path) -> (std::net::SocketAddr, Arc<Mutex<Store>>) {
    let policy = directory.join("policy.toml");
    fs::write(&policy, POLICY).unwrap();
    let values = region(4 * SLAB_LEN as usize);
    let store = Store::new(region(64 * BUCKET_LEN), values, Duration::ZERO);
    let store = Arc::new(Mutex::new(store));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let credentials = credentials.to_owned();
    let server = PutServer { credentials, policy, store: Arc::clone(&store) };
    // It ends with the process.
    thread::spawn(move || server.serve(&listener));
    (address, store)
}

#[test]
fn who_may_put_puts_and_others_are_told_why_not() {
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER, WRITER, READER]).unwrap();
    let (address, store) = server(scratch.path(), &ids[0]);
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
    let mut misled = PutClient::new(address, READER.parse().unwrap(), &ids[1]);
    let misled = misled.put(b"a", b"two", 2);
    assert!(matches!(misled, Err(PutFailed::Io { .. })), "it is another server: {misled:?}");
    let other = Scratch::new();
    let stranger = certificates::issue(other.path(), &[WRITER]).unwrap();
    let refused = PutClient::new(address, server(), &stranger[0]).put(b"a", b"two", 2);
    assert!(matches!(refused, Err(PutFailed::Io { .. })), "of another root: {refused:?}");
    assert_eq!(store.lock().unwrap().counters().puts, 3);
}
