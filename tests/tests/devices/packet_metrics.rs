//! A host's metrics of its packets: how many frames they have, and what was found in none.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{SocketAddr, UdpSocket};

use rma_tests::{exposition::Exposition, hosts::Loopback};
use rma_xdp::{HostAddr, HostConfig, InlineHost, OpStatus, OpType, Permissions, metrics::Metrics};

fn parse(metrics: &Metrics) -> Exposition {
    let mut text = String::new();
    metrics.prometheus(&mut text).unwrap();
    Exposition::parse(&text)
}

fn open(address: HostAddr, port: u16) -> InlineHost {
    InlineHost::open(HostConfig::udp(address).with(|it| it.port = port)).unwrap()
}

/// How many packets of at most each power of two of frames there were, then how many packets, then
/// how many frames.
fn packets(host: &InlineHost, direction: &str) -> ([f64; 6], f64, f64) {
    let text = parse(&host.metrics());
    let of = |suffix: &str, le: &str| {
        text.get(&format!("rma_packet_frames_{suffix}{{direction=\"{direction}\"{le}}}"))
    };
    let buckets = [1, 2, 4, 8, 16, 32].map(|bound| of("bucket", &format!(",le=\"{bound}\"")));
    (buckets, of("count", ""), of("sum", ""))
}

#[test]
fn both_ends_tell_how_many_frames_their_packets_have() {
    let Loopback { addresses: [client, server], port } = Loopback::unused();
    let (mut client_host, mut server_host) = (open(client, port), open(server, port));
    let region = server_host.register(4096, Permissions::READ).unwrap();
    let grant = server_host.grant(&region, client, client_host.pid(), OpType::Read).unwrap();
    let mut portal = client_host.portal(16).unwrap();
    let local = client_host.register(4096, Permissions::NONE).unwrap();
    // Requests of a turn to one host share a packet, and so do their responses.
    for reads in [1, 5, 16] {
        for read in 0..reads {
            portal.read(&grant, 0, &local, 64 * read, 64).unwrap();
        }
        while portal.outstanding() > 0 {
            client_host.turn();
            server_host.turn();
            while let Some(completion) = portal.poll() {
                assert_eq!(completion.status, OpStatus::Ok);
            }
        }
    }
    let sixteen_in_one = ([1.0, 1.0, 1.0, 2.0, 3.0, 3.0], 3.0, 22.0);
    assert_eq!(packets(&client_host, "sent"), sixteen_in_one);
    assert_eq!(packets(&server_host, "received"), sixteen_in_one);
    // Sixteen responses are more than the path carries in one packet, so their packets are more.
    let (buckets, count, frames) = packets(&server_host, "sent");
    assert_eq!((buckets[0], frames), (1.0, 22.0));
    assert!(buckets[3] > buckets[0] && count < 22.0, "responses share: {buckets:?}, {count}");
    assert_eq!(packets(&client_host, "received"), (buckets, count, frames));
}

#[test]
fn octets_in_which_no_frame_was_found_are_told() {
    let Loopback { addresses: [stranger, server], port } = Loopback::unused();
    let mut host = open(server, port);
    let socket = UdpSocket::bind((stranger.ip(), 0)).unwrap();
    let tell = |host: &InlineHost, what: &str| parse(&host.metrics()).get(what);
    assert_eq!(tell(&host, "rma_packet_tail_octets_total"), 0.0);
    assert!(!parse(&host.metrics()).any("rma_other_version_info"), "nobody has");
    for octets in [100, 7] {
        socket.send_to(&vec![0xff; octets], SocketAddr::new(server.ip(), port)).unwrap();
    }
    while tell(&host, "rma_frames_received_total") < 2.0 {
        host.turn();
    }
    assert_eq!(tell(&host, "rma_packet_tail_octets_total"), 107.0);
    assert_eq!(packets(&host, "received"), ([2.0; 6], 2.0, 2.0), "an end counts as a frame");
    // Whoever operates the hosts learns which of them it is.
    let stranger = stranger.to_string();
    let found = format!("rma_other_version_info{{host=\"{stranger}\",version=\"255\"}}");
    assert_eq!(tell(&host, &found), 1.0);
    // The other is too short for a version to mean anything.
    assert_eq!(tell(&host, "rma_frames_dropped_total{reason=\"Version\"}"), 1.0);
    let line = format!("\nversion     {stranger} speaks 255, and this host 2\n");
    assert!(host.metrics().to_string().contains(&line));
    assert!(host.metrics().to_string().contains("107 octets in packets' tails"));
}
