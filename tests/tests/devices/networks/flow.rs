//! Ops from one host to another, of which every byte is looked at.

#![expect(clippy::unwrap_used, reason = "a test's fixtures fail as the test itself does")]

use std::{thread, time::Duration};

use rma_xdp::{Grant, Host, HostAddr, OpStatus, OpType, Permissions, Portal, RegisteredRegion};
use rustix::time::{ClockId, clock_gettime};

/// The longest op.
pub(crate) const OP: u32 = 4096;

/// Longer than anything takes that is waited for, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// Polls until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = monotonic();
    while !condition() {
        assert!(monotonic() - start < PATIENCE, "not in {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

/// A region of the far host, and the near host's means to read and write it.
pub(crate) struct Flow {
    pub(crate) far: HostAddr,
    region: RegisteredRegion,
    grants: [Grant; 2],
    portal: Portal,
    local: RegisteredRegion,
    /// The content that the next op begins with.
    seed: u8,
}

impl Flow {
    /// From one address of the client to one of the server. It is an error if there is no path.
    pub(crate) fn new(
        [client, server]: [&Host; 2],
        [near, far]: [HostAddr; 2],
    ) -> Result<Self, rma_xdp::HostError> {
        let region = server.register(OP as usize, Permissions::READ | Permissions::WRITE)?;
        let grant = |op_type| server.grant(&region, near, client.pid(), op_type).unwrap();
        let grants = [OpType::Read, OpType::Write].map(grant);
        let local = client.register(OP as usize, Permissions::NONE)?;
        client.resolve(far)?;
        Ok(Self { far, region, grants, portal: client.portal(4)?, local, seed: 0 })
    }

    /// Bytes that have not been there before, in `from`; and others in `to`.
    fn fill(seed: &mut u8, from: &RegisteredRegion, to: &RegisteredRegion, len: u32) -> Vec<u8> {
        *seed = seed.wrapping_add(1);
        let bytes: Vec<u8> = (0..len).map(|it| (it as u8).wrapping_add(*seed)).collect();
        from.write(0, &bytes).unwrap();
        to.write(0, &vec![!*seed; len as usize]).unwrap();
        bytes
    }

    fn end(&mut self, to_local: bool, expected: &[u8]) -> OpStatus {
        let status = self.portal.wait().unwrap().status;
        let mut bytes = vec![0; expected.len()];
        let to = if to_local { &self.local } else { &self.region };
        to.read(0, &mut bytes).unwrap();
        assert!(status != OpStatus::Ok || bytes == expected, "bytes of an op that was OK");
        status
    }

    pub(crate) fn read(&mut self, len: u32) -> OpStatus {
        let bytes = Self::fill(&mut self.seed, &self.region, &self.local, len);
        self.portal.read(&self.grants[0], 0, &self.local, 0, len).unwrap();
        self.end(true, &bytes)
    }

    pub(crate) fn write(&mut self, len: u32) -> OpStatus {
        let bytes = Self::fill(&mut self.seed, &self.local, &self.region, len);
        self.portal.write(&self.grants[1], 0, &self.local, 0, len).unwrap();
        self.end(false, &bytes)
    }

    /// Long and short ops, until all of them succeed. Nothing else than TIMEOUT may befall them.
    pub(crate) fn succeeds(&mut self) {
        eventually("ops in both directions that are OK", || {
            let short = [self.read(64), self.write(64)];
            let all = [short[0], short[1], self.read(OP), self.write(OP)];
            let is_known = |it: &OpStatus| matches!(it, OpStatus::Ok | OpStatus::Timeout);
            assert!(all.iter().all(is_known), "{all:?}");
            all == [OpStatus::Ok; 4]
        });
    }
}
