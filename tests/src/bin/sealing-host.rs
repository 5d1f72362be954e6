//! A host that seals frames without end, for tests that kill it: it asks a peer that never answers,
//! and asks again.
//!
//! Its wall clock is the system's, set off by as many seconds as it is told.

use core::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};
use std::{env, error::Error};

use rma_xdp::{
    Grant, Host, HostAddr, HostConfig, InlineHost, OpType, Permissions, Pid, Portal,
    RegisteredRegion,
    config::{IdlePolicy, NicConfigBuilder, Timing},
    crypto::DerivedRegionKey,
    memory::RegionId,
};
use rustix::{
    process::{Signal, set_parent_process_death_signal},
    time::{ClockId, clock_gettime},
};

static CLOCK_OFFSET_SECS: AtomicI64 = AtomicI64::new(0);

fn wall_clock() -> Option<u64> {
    let now = clock_gettime(ClockId::Realtime);
    let secs = u64::try_from(now.tv_sec.checked_add(CLOCK_OFFSET_SECS.load(Relaxed))?).ok()?;
    secs.checked_mul(1_000_000_000)?.checked_add(now.tv_nsec.try_into().ok()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Whatever becomes of the test, this ends with it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let args: Vec<String> = env::args().skip(1).collect();
    let [kind, address, peer, port, state_dir, offset, block_len] = &args[..] else {
        return Err("usage: KIND ADDRESS PEER PORT STATE_DIR CLOCK_OFFSET_SECS BLOCK_LEN".into());
    };
    CLOCK_OFFSET_SECS.store(offset.parse()?, Relaxed);
    let (address, peer): (HostAddr, HostAddr) = (address.parse()?, peer.parse()?);
    let (state_dir, block_len) = (Some(state_dir.into()), block_len.parse()?);
    // Frames leave at a pace that the test can follow.
    let timing = Timing::new(Duration::from_millis(1), Duration::from_millis(2));
    // Between its frames it leaves the core to the others.
    let idle = IdlePolicy::default().with(|it| {
        it.spin = Duration::ZERO;
        it.yield_for = Duration::ZERO;
        it.sleep = true;
    });
    let config = {
        let mut it = HostConfig::udp(address);
        it.idle = idle;
        it.port = port.parse()?;
        it.pid = PID;
        (it.counter.state_dir, it.counter.block_len) = (state_dir, block_len);
        it.counter.wall_clock = wall_clock;
        it.nic = NicConfigBuilder::default().with(|it| it.timing = timing);
        it
    };
    let grant = Grant {
        responder: peer,
        region: RegionId::from_bits(7),
        region_len: 64,
        initiator: address,
        pid: PID,
        op_type: OpType::Read,
        key: DerivedRegionKey::from_bytes([5; 16]),
    };
    match kind.as_str() {
        "thread" => {
            let host = Host::open(config)?;
            let sink = host.register(64, Permissions::NONE)?;
            let mut portal = host.portal(8)?;
            loop {
                fill(&mut portal, &grant, &sink);
                portal.wait()?;
            }
        }
        "inline" => {
            let mut host = InlineHost::open(config)?;
            let sink = host.register(64, Permissions::NONE)?;
            let mut portal = host.portal(8)?;
            loop {
                fill(&mut portal, &grant, &sink);
                host.wait(&mut portal)?;
            }
        }
        _ => Err("KIND is thread or inline".into()),
    }
}

const PID: Pid = Pid(9);

/// Issues an op on every free slot.
fn fill(portal: &mut Portal, grant: &Grant, sink: &RegisteredRegion) {
    while portal.read(grant, 0, sink, 0, 64).is_ok() {}
}
