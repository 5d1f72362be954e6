//! Hosts whose MTU is larger than what a chunk of AF_XDP's memory holds: what leaves in one chunk,
//! and what in several.

use rma_lab::{LabConfig, Pattern};
use rma_tests::hosts::{CLIENT_PID, Hosts, Setup};
use rma_xdp::{Host, OpType, Permissions};

const LEN: usize = 1 << 20;

/// How many packets a host has sent in several chunks.
fn in_several_chunks(host: &Host) -> u64 {
    let counters = host.metrics().device.counters;
    let name = "rma_xdp_tx_multi_buffer_total";
    counters.iter().find(|it| it.name == name).expect("the device counts it").value
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn large_calls_stay_in_one_chunk_and_ops_that_fit_a_frame_are_not_cut_for_it() {
    for ipv6 in [false, true] {
        let lab = LabConfig { mtu: 9000, ..LabConfig::default() };
        let hosts = Hosts::in_lab(&Setup { lab, ipv6, ..Setup::default() });
        let server = hosts.server();
        let region = server.register(LEN, Permissions::READ).unwrap();
        let pattern = Pattern::new(7);
        pattern.fill_region(&region);
        let grant = server.grant(&region, hosts.client_addr, CLIENT_PID, OpType::Read).unwrap();
        let local = hosts.client.register(LEN, Permissions::NONE).unwrap();
        let mut executor = hosts.client.transfers(64).unwrap();
        let mut bytes = vec![0; LEN];

        executor.read(&grant, 0, &local, 0, LEN as u64).unwrap();
        local.read(0, &mut bytes).unwrap();
        assert_eq!(pattern.first_difference(0, &bytes), None);
        assert_eq!(in_several_chunks(server), 0);

        // A response of 4 KiB, in one frame.
        executor.read(&grant, 9, &local, 0, 4096).unwrap();
        local.read(0, &mut bytes[..4096]).unwrap();
        assert_eq!(pattern.first_difference(9, &bytes[..4096]), None);
        assert_eq!(in_several_chunks(server), 1);
    }
}
