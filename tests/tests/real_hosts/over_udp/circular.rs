//! Circular regions: what remote hosts do across the end of one.

use std::sync::Arc;

use rma_tests::{
    hosts::Hosts,
    messages::{grant, layout},
};
use rma_xdp::{
    OpStatus, OpType, Permissions, Quotas, Region, RegisteredRegion, TenantConfig,
    config::NicConfigBuilder, crypto::random_region_key, ops::Source, tenant::Quota,
};

const LEN: usize = 8192;
/// How far before the end ops begin: their data is of several frames, of which one lies across it.
const BEFORE_END: u64 = 2000;

/// Returns all permissions, for the server's region.
fn all() -> Permissions {
    Permissions::READ | Permissions::WRITE | Permissions::ATOMIC | Permissions::NOTIFY
}

fn bytes_at<const N: usize>(region: &RegisteredRegion, offset: u64) -> [u8; N] {
    let mut bytes = [0; N];
    region.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn ops_of_every_type_go_on_at_the_begin_of_a_circular_region() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let mut queue = hosts.server().receive_queue(layout(1, 0), Permissions::NOTIFY).unwrap();
    queue.post_all();
    let (memory, key) = (Arc::new(Region::circular(LEN).unwrap()), random_region_key().unwrap());
    let ring = hosts.server().register_memory_with_events(&queue, memory, key, all()).unwrap();
    let of = |op_type| grant(&hosts, &ring, op_type);
    assert_eq!((ring.len(), ring.reach(), of(OpType::Read).region_len), (8192, 16384, 16384));

    let memory = Arc::new(Region::circular(4160).unwrap());
    let local =
        hosts.client.register_memory(memory, random_region_key().unwrap(), Permissions::NONE);
    let local = local.unwrap();
    let mut portal = hosts.client.portal(1).unwrap();
    let start = LEN as u64 - BEFORE_END;
    let source = Source { region: &local, offset: 100, len: 4096 };
    let sent: [u8; 4096] = core::array::from_fn(|at| ((at * 31) >> 3) as u8);
    for op in ["write", "ordered", "immediate"] {
        ring.write(0, &[0; LEN]).unwrap();
        // From across the end of the local region as well.
        local.write(100, &sent).unwrap();
        match op {
            "write" => portal.write(&of(OpType::Write), start, &local, 100, 4096),
            "ordered" => portal.write_ordered(&of(OpType::Write), start, source),
            _ => portal.write_with_imm(&of(OpType::WriteWithImm), start, source, 7),
        }
        .unwrap();
        assert_eq!(portal.wait().unwrap().status, OpStatus::Ok, "{op}");
        assert_eq!(bytes_at::<4096>(&ring, start), sent, "{op}");
        assert_eq!(bytes_at::<2000>(&ring, start), sent[..2000], "{op}: what is before the end");
        assert_eq!(bytes_at::<2096>(&ring, 0), sent[2000..], "{op}: what is behind it");
        assert_eq!(bytes_at::<4096>(&ring, 2096), [0; 4096], "{op}: and nothing else");

        local.write(0, &[0; 4160]).unwrap();
        portal.read(&of(OpType::Read), start, &local, 4000, 4096).unwrap();
        assert_eq!(portal.wait().unwrap().status, OpStatus::Ok, "{op}");
        assert_eq!(bytes_at::<4096>(&local, 4000), sent, "{op}");
        assert_eq!(bytes_at::<64>(&local, 4000 + 4096), [0; 64], "{op}: and nothing else");
    }
    assert_eq!(queue.poll().expect("its event").region_offset, start);

    ring.store(8, 5).unwrap();
    portal.fetch_add(&of(OpType::FetchAdd), LEN as u64 + 8, 2).unwrap();
    assert_eq!(portal.wait().unwrap().result(), Some(5));
    portal.compare_swap(&of(OpType::CompareSwap), 8, 7, 9).unwrap();
    assert_eq!(portal.wait().unwrap().result(), Some(7));
    assert_eq!(ring.load(LEN as u64 + 8), Ok(9));
}

#[test]
fn an_op_that_is_longer_than_a_circular_region_is_refused_though_its_grant_says_more() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let memory = Arc::new(Region::circular(64).unwrap());
    let ring = hosts.server().register_memory(memory, random_region_key().unwrap(), all()).unwrap();
    let local = hosts.client.register(128, Permissions::NONE).unwrap();
    let mut portal = hosts.client.portal(1).unwrap();
    let to_read = grant(&hosts, &ring, OpType::Read);
    for (offset, size, status) in
        [(0, 64, OpStatus::Ok), (64, 64, OpStatus::Ok), (0, 65, OpStatus::RemoteOutOfBounds)]
    {
        portal.read(&to_read, offset, &local, 0, size).unwrap();
        assert_eq!(portal.wait().unwrap().status, status, "{size} bytes at {offset}");
    }
}

#[test]
fn a_tenant_pays_for_the_bytes_of_a_circular_region_once() {
    let hosts = Hosts::over_udp(NicConfigBuilder::default());
    let quotas = Quotas::default().with(|it| it.bytes = Quota::new(0, LEN as u64));
    let config = TenantConfig::named("rings").with(|it| it.quotas = quotas);
    let tenant = hosts.server().tenant(config).unwrap();
    let register = |len| {
        let (memory, key) =
            (Arc::new(Region::circular(len).unwrap()), random_region_key().unwrap());
        hosts.server().for_tenant(&tenant).register_memory(memory, key, Permissions::NONE)
    };
    let ring = register(LEN).unwrap();
    let bytes = hosts.server().for_tenant(&tenant).usage().unwrap().bytes;
    assert_eq!((bytes.used, bytes.available, ring.reach()), (8192, 0, 16384));
    assert!(register(64).is_err(), "it has no byte left");
}
