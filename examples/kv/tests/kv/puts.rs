//! Puts over TLS, with a server of this process: who may, and what becomes of what is wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    env,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rma_core::region::{NicTag, RegionId, RegisteredRegion};
use rma_keys::{
    io::clock,
    tls::{directory::Directory, wall::Wall},
};
use rma_kv::{
    certificates,
    layout::{BUCKET_LEN, VALUE_LEN_MAX},
    puts::{CONNECTION_TIME, PutClient, PutFailed, PutServer},
    slabs::SLAB_LEN,
    store::{Store, Stored},
};
use rma_lab::Scratch;
use rma_shm::Region;
use rma_xdp::time::{Clock, TscClock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

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

/// Says to a test that its process is for it alone.
const ALONE: &str = "KV_TEST_ALONE";

fn region(len: usize) -> RegisteredRegion {
    let memory = Arc::new(Region::new(len).unwrap());
    RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1))
}

fn server(
    directory: &Path,
    credentials: &Path,
    connection_time: Duration,
) -> (SocketAddr, Arc<Mutex<Store>>) {
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
fn a_client_that_may_put_puts_and_others_are_told_why_not() {
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

/// Until `act` succeeds: a busy machine may not do it within a connection's time.
fn in_the_end<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let clock = TscClock::new();
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) => {
                let waited = Duration::from_nanos(clock.now().as_nanos());
                assert!(waited < PATIENCE, "{error:?}");
                thread::park_timeout(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_panic_under_the_stores_lock_is_not_the_end_of_puts() {
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER, WRITER]).unwrap();
    let (address, store) = server(scratch.path(), &ids[0], CONNECTION_TIME);
    let mut writer = PutClient::new(address, SERVER.parse().unwrap(), &ids[1]);
    assert_eq!(writer.put(b"a", b"one", 1).unwrap(), Stored::Yes);
    let panics = Arc::clone(&store);
    let panicked = thread::spawn(move || {
        let _store = panics.lock();
        panic!("a test has this lock");
    });
    assert!(panicked.join().is_err() && store.is_poisoned());
    assert_eq!(writer.put(b"a", b"two", 2).unwrap(), Stored::Yes);
    assert_eq!(writer.put(b"a", b"one", 1).unwrap(), Stored::Stale);
}

/// A connection whose puts the test writes by itself.
fn connect(
    address: SocketAddr,
    credentials: &Path,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let (_, credentials) = Directory::open(credentials).unwrap();
    let wall = Arc::new(Wall::new());
    wall.set(clock::now().wall);
    let mut config = (*credentials.client(&wall, SERVER.parse().unwrap())).clone();
    config.alpn_protocols = vec![b"rma-kv-puts/1".to_vec()];
    let name = ServerName::IpAddress(address.ip().into());
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(tls, socket))
}

#[test]
fn a_put_that_is_late_for_its_connection_is_not_done_and_the_next_has_a_new_one() {
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER, WRITER]).unwrap();
    let (address, store) = server(scratch.path(), &ids[0], Duration::from_millis(500));
    let puts = || store.lock().unwrap().counters().puts;
    // Length, version, length of the key, key and value.
    let put = [&17_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &1_u32.to_le_bytes(), b"alate"];
    let (first, last) = put.split_at(3);
    let mut late = in_the_end(|| {
        let mut stream = connect(address, &ids[1])?;
        stream.write_all(&first.concat())?;
        stream.flush().map(|()| stream)
    });
    // The server ends it, and has answered nothing.
    let answered = late.read(&mut [0]);
    assert!(!matches!(answered, Ok(1)), "{answered:?}");
    let sent = late.write_all(&last.concat()).and_then(|()| late.flush());
    let answered = sent.and_then(|()| late.read_exact(&mut [0]));
    assert!(answered.is_err());
    assert_eq!(puts(), 0);

    let mut writer = PutClient::new(address, SERVER.parse().unwrap(), &ids[1]);
    for version in [1, 2] {
        _ = in_the_end(|| writer.put(b"a", b"value", version));
        // Its connection's time passes.
        thread::park_timeout(Duration::from_millis(600));
    }
    assert_eq!(puts(), 2);
}

#[test]
fn a_server_that_has_used_up_its_files_takes_puts_when_there_are_some_again() {
    const THIS: &str = "a_server_that_has_used_up_its_files_takes_puts_when_there_are_some_again";
    if env::var_os(ALONE).is_none() {
        let mut alone = Command::new(env::current_exe().unwrap());
        let output = alone.args(["--exact", THIS]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let scratch = Scratch::new();
    let ids = certificates::issue(scratch.path(), &[SERVER, WRITER]).unwrap();
    let (address, store) = server(scratch.path(), &ids[0], CONNECTION_TIME);
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limits }).unwrap();
    let rest = || std::iter::from_fn(|| File::open("/dev/null").ok());
    let mut files: Vec<File> = rest().collect();
    assert!(files.len() > 50);
    files.pop();
    // The server takes it with a file that the system has kept for that, and has none for the next.
    let waits = TcpStream::connect(address).unwrap();
    let clock = TscClock::new();
    // For some of the server's pauses.
    while clock.now().as_nanos() < 300_000_000 {
        files.extend(rest());
        thread::park_timeout(Duration::from_millis(1));
    }
    drop((files, waits));
    let mut writer = PutClient::new(address, SERVER.parse().unwrap(), &ids[1]);
    _ = in_the_end(|| writer.put(b"a", b"one", 1));
    assert_eq!(store.lock().unwrap().counters().puts, 1);
}
