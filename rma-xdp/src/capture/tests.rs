//! Captures of hosts over UDP on loopback, read back by another's parser.

use std::{
    net::UdpSocket,
    os::unix::net::UnixStream,
    sync::mpsc::{Sender, channel},
};

use pcap_parser::{
    Block, PcapBlockOwned, PcapError, PcapNGReader,
    traits::{PcapNGPacketBlock, PcapReaderIterator},
};

use super::*;
use rma_core::capture::Direction;

use crate::{Host, HostConfig, OpStatus, OpType, Permissions};

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet of a file.
struct Read {
    is_in: bool,
    octets: Vec<u8>,
    len: u32,
    comments: Vec<String>,
}

/// The packets of a file, and how many interfaces and statistics it has.
fn parse(file: &[u8]) -> (Vec<Read>, [usize; 2]) {
    assert_eq!(whole_blocks(file), file.len());
    let (mut packets, mut others) = (Vec::new(), [0; 2]);
    let mut reader = PcapNGReader::new(1 << 20, file).unwrap();
    loop {
        let (used, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        match block {
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let options = || packet.options.iter();
                let value =
                    |it: &pcap_parser::PcapNGOption<'_>| it.value()[..it.len.into()].to_vec();
                let comments = options().filter(|it| it.code.0 == 1).map(value);
                let flags = options().find(|it| it.code.0 == 2).map(value).unwrap();
                packets.push(Read {
                    is_in: flags == [1, 0, 0, 0],
                    octets: packet.packet_data().to_vec(),
                    len: packet.origlen,
                    comments: comments.map(|it| String::from_utf8(it).unwrap()).collect(),
                });
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                assert_eq!((interface.linktype.0, interface.if_tsresol), (1, 9));
                others[0] += 1;
            }
            PcapBlockOwned::NG(Block::InterfaceStatistics(_)) => others[1] += 1,
            _ => {}
        }
        reader.consume(used);
    }
    assert_eq!(packets_in(file), packets.len() as u64);
    (packets, others)
}

/// A server and a client, which reads 64 bytes.
struct Pair {
    server: Host,
    client: Host,
}

impl Pair {
    fn open(last: u8) -> Self {
        let open = |last| Host::open(HostConfig::udp([127, 0, 7, last])).unwrap();
        Self { server: open(last), client: open(last + 1) }
    }

    fn read(&self, times: usize) {
        let initiator = self.client.addresses().iter().next().unwrap();
        let region = self.server.register(64, Permissions::READ).unwrap();
        let pid = self.client.pid();
        let grant = self.server.grant(&region, initiator, pid, OpType::Read).unwrap();
        let local = self.client.register(64, Permissions::NONE).unwrap();
        let mut portal = self.client.portal(1).unwrap();
        for _ in 0..times {
            portal.read(&grant, 0, &local, 0, 64).unwrap();
            assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
        }
    }
}

/// Waits until the engine has what was offered last.
fn wait_for_tap(host: &Host) {
    let engines = &host.capture_source().0.engines;
    while !engines.iter().all(|engine| engine.slot.is_taken()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_capture_has_both_directions_and_what_became_of_each_frame() {
    let pair = Pair::open(1);
    let file = Memory::default();
    let source = pair.server.capture_source();
    let capture = source.start(file.clone(), CaptureConfig::default()).unwrap();
    wait_for_tap(&pair.server);
    pair.read(10);
    let stranger = UdpSocket::bind("127.0.7.99:0").unwrap();
    stranger.send_to(&[0xff; 100], "127.0.7.1:10472").unwrap();
    pair.read(1);
    let totals = capture.finish().unwrap();
    let (packets, others) = parse(&file.0.lock().unwrap());
    assert_eq!((totals.packets, totals.missed), (packets.len() as u64, 0));
    assert_eq!(others, [1, 1]);
    let with = |comment: &str, is_in| {
        packets.iter().filter(|it| it.is_in == is_in && it.comments == [comment]).count()
    };
    assert_eq!((with("1rma 1/1 ok", true), with("1rma 1/1 sent", false)), (11, 11));
    assert_eq!(with("1rma 1/1 drop=Version", true), 1);
    // Encrypted as they came: a request of 56 octets behind headers of IPv4.
    assert!(packets.iter().all(|it| it.octets.len() == 128.min(it.len as usize)));
    pair.read(1);
}

#[test]
fn a_second_capture_is_refused_with_who_has_the_first_and_may_follow_it() {
    let pair = Pair::open(5);
    let source = pair.server.capture_source();
    let config = CaptureConfig::default().with(|it| it.holder = "process 7 of user 0".into());
    let start = || source.start(Memory::default(), config.clone());
    let first = start().unwrap();
    let error = start().unwrap_err().to_string();
    assert!(error.contains("process 7 of user 0 captures this host already"), "{error}");
    drop(first);
    start().unwrap().finish().unwrap();
    let config = config.with(|it| it.snap = 65_536);
    let error = source.start(Memory::default(), config).unwrap_err().to_string();
    assert!(error.contains("65536") && error.contains("0 to 65535"), "{error}");
}

#[test]
fn a_file_that_cannot_grow_ends_the_capture_and_not_the_ops() {
    let pair = Pair::open(10);
    let full = WholeFile::create(std::path::Path::new("/dev/full")).unwrap();
    let capture = pair.server.capture_source().start(full, CaptureConfig::default()).unwrap();
    while !capture.is_over() {
        std::thread::yield_now();
    }
    let error = capture.finish().unwrap_err().to_string();
    assert!(error.contains("cannot be written") && error.contains("the host goes on"), "{error}");
    pair.read(3);
}

#[test]
fn a_capture_ends_with_its_host_and_is_whole() {
    let Pair { server, client } = Pair::open(15);
    let (file, source) = (Memory::default(), server.capture_source().clone());
    let config = CaptureConfig::default().with(|it| it.snap = 0);
    let capture = source.start(file.clone(), config).unwrap();
    wait_for_tap(&server);
    let pair = Pair { server, client };
    pair.read(2);
    drop(pair);
    while !capture.is_over() {
        std::thread::yield_now();
    }
    assert!(capture.finish().unwrap().packets >= 4);
    let (packets, _) = parse(&file.0.lock().unwrap());
    assert!(packets.iter().all(|it| it.octets.is_empty() && it.comments.len() == 1));
}

#[test]
fn blocks_that_are_cut_anywhere_are_whole_up_to_the_last_that_is_whole() {
    let mut blocks = Blocks::new("test");
    blocks.interface("one", 0);
    let first = blocks.octets().len();
    let packet = Captured {
        interface: 0,
        at: 7,
        direction: Direction::In,
        octets: &[1, 2, 3],
        len: 5,
        missed: 9,
    };
    blocks.packet(&packet, [Comment::Text("text")]);
    let all = blocks.octets();
    for len in first..all.len() {
        assert_eq!(whole_blocks(&all[..len]), first, "{len}");
    }
    assert_eq!((whole_blocks(all), packets_in(all)), (all.len(), 1));
    assert_eq!(whole_blocks(&[0; 64]), 0, "a block of no length");
}

/// Asks a socket, and gives its answer to whoever waits.
fn ask(endpoint: &CaptureEndpoint, request: &str, answers: &Sender<String>) -> UnixStream {
    use std::io::Read;
    let mut stream = UnixStream::connect(endpoint.path()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut octet) = (Vec::new(), [0]);
    while stream.read(&mut octet).unwrap() > 0 && octet != *b"\n" {
        answer.push(octet[0]);
    }
    answers.send(String::from_utf8(answer).unwrap()).unwrap();
    stream
}

#[test]
fn a_socket_gives_one_client_a_capture_and_takes_the_tap_out_when_that_goes() {
    use std::{io::Read, net::Shutdown, os::unix::fs::PermissionsExt};
    let pair = Pair::open(20);
    let directory = std::env::temp_dir().join(format!("rma-capture-{}", std::process::id()));
    let start =
        || CaptureEndpoint::start(&directory, pair.server.capture_source().clone()).unwrap();
    let endpoint = start();
    let mode = std::fs::metadata(endpoint.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_ne!(start().path(), endpoint.path(), "another host of this process has its own");
    let (told, answers) = channel();
    for bad in ["capture 2 128\n", "capture 1 x\n", "GET / HTTP/1.1\r\n\r\n"] {
        drop(ask(&endpoint, bad, &told));
        assert!(answers.recv().unwrap().starts_with("no: "), "{bad}");
    }
    let mut client = ask(&endpoint, "capture 1 128\n", &told);
    assert_eq!(answers.recv().unwrap(), "ok");
    drop(ask(&endpoint, "capture 1 128\n", &told));
    let refusal = answers.recv().unwrap();
    assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
    wait_for_tap(&pair.server);
    pair.read(3);
    client.shutdown(Shutdown::Write).unwrap();
    let mut file = Vec::new();
    client.read_to_end(&mut file).unwrap();
    let (packets, others) = parse(&file);
    assert!(packets.len() >= 6 && others == [1, 1], "{}", packets.len());
    // One that is killed: the next gets its turn.
    drop({
        let stream = ask(&endpoint, "capture 1 0\n", &told);
        assert_eq!(answers.recv().unwrap(), "ok");
        stream
    });
    loop {
        drop(ask(&endpoint, "capture 1 0\n", &told));
        if answers.recv().unwrap() == "ok" {
            break;
        }
    }
    drop(endpoint);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "no socket stays");
    std::fs::remove_dir(&directory).unwrap();
}
