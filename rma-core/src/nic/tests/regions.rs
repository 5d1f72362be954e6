//! The host memory that a NIC touches: of the one region that an op names, at either end, and
//! nothing else.

use super::*;

const LEN: usize = 8192;

/// Three regions of one host, and what is in their memory.
struct Neighbours {
    ids: [RegionId; 3],
    memories: [Arc<Region>; 3],
    before: [Vec<u8>; 3],
}

impl Neighbours {
    /// Under one key: it is not the key that keeps them apart.
    fn new(host: &mut Host, salt: u8) -> Self {
        let memories = [0, 1, 2].map(|_| Arc::new(Region::new(LEN).unwrap()));
        let before: [Vec<u8>; 3] = [0, 1, 2].map(|n: u8| {
            (0..LEN)
                .map(|at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8 ^ n << 6 ^ salt)
                .collect()
        });
        for (memory, bytes) in memories.iter().zip(&before) {
            memory.copy_in(0, bytes).unwrap();
        }
        let both = Permissions::READ | Permissions::WRITE;
        let ids = [0, 1, 2].map(|n: usize| register(&mut host.nic, &memories[n], &host.key, both));
        Self { ids, memories, before }
    }

    /// All bytes are what they were, but for those of region `changed` from `offset` on.
    fn assert_only(&self, changed: usize, offset: usize, bytes: &[u8]) {
        for (n, (memory, before)) in self.memories.iter().zip(&self.before).enumerate() {
            let mut expected = before.clone();
            if n == changed {
                expected[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            let mut there = vec![0; LEN];
            memory.copy_out(0, &mut there).unwrap();
            assert!(there == expected, "region {n}");
        }
    }

    fn assert_untouched(&self) {
        self.assert_only(0, 0, &[]);
    }
}

/// A transfer between the middle regions of both hosts.
fn transfer(
    pair: &Pair,
    op_type: OpType,
    at: [&Neighbours; 2],
    offsets: [u64; 2],
    size: u32,
) -> Command {
    let [local, remote] = at;
    let transfer = Transfer {
        op_size: size,
        remote_offset: offsets[1],
        local_region: local.ids[1],
        local_offset: offsets[0],
    };
    let op = if op_type == OpType::Read {
        CommandOp::Read(transfer)
    } else {
        CommandOp::Write(transfer)
    };
    Command { remote_region: remote.ids[1], ..pair.command(0, op) }
}

//= 1rma#4.3-one-region-per-access
//= type=test
#[test]
fn an_op_touches_the_one_region_that_it_names_at_either_end() {
    for op_type in [OpType::Read, OpType::Write] {
        for (offsets, size) in
            [([0, 0], 4096), ([4096, 4096], 4096), ([8191, 0], 1), ([5, 4001], 4000)]
        {
            let mut pair = Pair::new();
            let (a, b) = (Neighbours::new(&mut pair.a, 0x55), Neighbours::new(&mut pair.b, 0xaa));
            pair.issue(transfer(&pair, op_type, [&a, &b], offsets, size));
            pair.exchange();
            assert_eq!(pair.status(), OpStatus::Ok);
            let [local, remote] = offsets.map(|offset| offset as usize);
            let size = size as usize;
            if op_type == OpType::Read {
                a.assert_only(1, local, &b.before[1][remote..remote + size]);
                b.assert_untouched();
            } else {
                a.assert_untouched();
                b.assert_only(1, remote, &a.before[1][local..local + size]);
            }
        }
    }
}

/// Also not its first bytes, which are inside.
//= 1rma#4.3-one-region-per-access
//= type=test
#[test]
fn an_op_that_reaches_beyond_its_region_at_either_end_touches_nothing() {
    let len = LEN as u64;
    for op_type in [OpType::Read, OpType::Write] {
        for outside in [len - 63, len, u64::MAX - 63, u64::MAX] {
            let mut pair = Pair::new();
            let (a, b) = (Neighbours::new(&mut pair.a, 0x55), Neighbours::new(&mut pair.b, 0xaa));
            let remote = transfer(&pair, op_type, [&a, &b], [0, outside], 64);
            let local = transfer(&pair, op_type, [&a, &b], [outside, 0], 64);
            for (command, status) in
                [(remote, OpStatus::RemoteOutOfBounds), (local, OpStatus::InvalidCommand)]
            {
                pair.issue(command);
                pair.exchange();
                assert_eq!(pair.status(), status, "{op_type:?} at {outside}");
                a.assert_untouched();
                b.assert_untouched();
            }
        }
    }
}
