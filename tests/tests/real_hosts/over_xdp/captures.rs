//! Captures of hosts over AF_XDP: what no packet socket sees.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    io::{self, Write},
    process::Command,
    sync::{Arc, Mutex},
};

use pcap_parser::{
    Block, PcapBlockOwned, PcapError, PcapNGReader,
    traits::{PcapNGPacketBlock, PcapReaderIterator},
};
use rma_lab::{Lab, LabConfig, evidence};
use rma_xdp::{
    Host, HostConfig, OpStatus, OpType, Permissions,
    capture::{Capture, CaptureConfig, WholeFile},
    crypto::random_region_key,
    device::{InterfaceState, xdp::Mode},
};

use super::interface_lost::{wait_attachments, wait_state};

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

/// The comments of a file's packets, with whether they came in.
fn comments(file: &[u8]) -> Vec<(bool, Vec<String>)> {
    let mut packets = Vec::new();
    let mut reader = PcapNGReader::new(1 << 20, file).unwrap();
    loop {
        let (used, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
            let ethertype = [packet.packet_data()[12], packet.packet_data()[13]];
            assert_eq!(ethertype, [0x08, 0x00], "the headers of the wire");
            let value = |it: &pcap_parser::PcapNGOption<'_>| {
                String::from_utf8_lossy(&it.value()[..it.len.into()]).into_owned()
            };
            let comments = packet.options.iter().filter(|it| it.code.0 == 1).map(value).collect();
            let flags = packet.options.iter().find(|it| it.code.0 == 2).unwrap().value()[0];
            packets.push((flags == 1, comments));
        }
        reader.consume(used);
    }
}

/// A server and a client on a veth pair.
struct Pair {
    lab: Lab,
    server: Host,
    client: Host,
}

impl Pair {
    fn open(mode: Mode) -> Self {
        let lab = Lab::new(&LabConfig::default()).unwrap();
        let open = |netns: &rma_lab::Netns| {
            let _inside = netns.enter().unwrap();
            let mut config = HostConfig::xdp(Lab::INTERFACE);
            config.device = config.device.in_mode(mode);
            Host::open(config).unwrap()
        };
        let (client, server) = (open(lab.a()), open(lab.b()));
        client.resolve(Lab::B_V4.into()).unwrap();
        server.resolve(Lab::A_V4.into()).unwrap();
        Self { lab, server, client }
    }

    /// READs, of which the last is refused, as the region has another key by then.
    fn read(&self, times: usize) {
        let region = self.server.register(64, Permissions::READ).unwrap();
        let pid = self.client.pid();
        let grant = self.server.grant(&region, Lab::A_V4.into(), pid, OpType::Read).unwrap();
        let local = self.client.register(64, Permissions::NONE).unwrap();
        let mut portal = self.client.portal(1).unwrap();
        let mut read = || {
            portal.read(&grant, 0, &local, 0, 64).unwrap();
            portal.wait().unwrap().status
        };
        for _ in 0..times {
            assert_eq!(read(), OpStatus::Ok);
        }
        self.server.rekey(&region, random_region_key().unwrap()).unwrap();
        assert_eq!(read(), OpStatus::RemoteAuthenticationFailure);
    }
}

/// Starts a capture, and waits until packets are in it.
fn start(host: &Host, out: impl Write + Send + 'static) -> Capture {
    let capture = host.capture_source().start(out, CaptureConfig::default()).unwrap();
    while !capture.has_begun() {
        std::thread::yield_now();
    }
    capture
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_capture_of_reads_has_both_directions_with_verdicts_and_a_drop_has_its_reason() {
    for mode in [Mode::Native, Mode::Generic] {
        let pair = Pair::open(mode);
        let file = Memory::default();
        let capture = start(&pair.server, file.clone());
        pair.read(100);
        let totals = capture.finish().unwrap();
        assert_eq!(totals.missed, 0);
        let packets = comments(&file.0.lock().unwrap());
        let count = |is_in, comment: &str| {
            packets.iter().filter(|it| it.0 == is_in && it.1 == [comment]).count()
        };
        assert_eq!(count(true, "1rma 1/1 ok"), 100, "{packets:?}");
        assert_eq!(count(false, "1rma 1/1 sent"), 101, "answers, and a refusal");
        assert_eq!(count(true, "1rma 1/1 drop=OldKey"), 1, "{packets:?}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_capture_goes_on_when_its_interface_is_back_and_says_so() {
    let pair = Pair::open(Mode::Auto);
    let file = Memory::default();
    let capture = start(&pair.server, file.clone());
    pair.read(1);
    pair.lab.a().ip(&["link", "del", "dev", Lab::INTERFACE]).unwrap();
    wait_state(&pair.server, InterfaceState::Gone);
    pair.lab.link(&LabConfig::default()).unwrap();
    for host in [&pair.client, &pair.server] {
        wait_attachments(host, 2);
    }
    pair.client.resolve(Lab::B_V4.into()).unwrap();
    pair.server.resolve(Lab::A_V4.into()).unwrap();
    pair.read(3);
    capture.finish().unwrap();
    let packets = comments(&file.0.lock().unwrap());
    let told = |text: &str| packets.iter().position(|it| it.1.iter().any(|it| it == text));
    let (gone, back) = (told("1rma interface gone").unwrap(), told("1rma interface back").unwrap());
    assert!(gone <= back && back + 4 < packets.len(), "{packets:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tshark_reads_a_capture_with_its_comments() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return evidence::not_run("captures through tshark: it is not installed");
    }
    let pair = Pair::open(Mode::Auto);
    let path = std::env::temp_dir().join(format!("rma-capture-{}.pcapng", std::process::id()));
    let capture = start(&pair.client, WholeFile::create(&path).unwrap());
    pair.read(10);
    let totals = capture.finish().unwrap();
    let fields = ["-T", "fields", "-e", "udp.dstport", "-e", "frame.comment"];
    let read = Command::new("tshark").arg("-r").arg(&path).args(fields).output().unwrap();
    fs::remove_file(&path).unwrap();
    let text = String::from_utf8(read.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("1rma 1/1 ")).collect();
    assert_eq!(lines.len() as u64, totals.packets, "{text}");
    evidence::show(format_args!("tshark read {} packets with their verdicts", lines.len()));
}
