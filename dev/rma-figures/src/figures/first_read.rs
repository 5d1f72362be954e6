//! The first program of a newcomer, measured: reads with all defaults, on two cores for
//! everything, beside TCP under tokio on the same two.

use std::thread;

use rma_bench::{
    error::PairError,
    floor::clock,
    interrupt::Interrupt,
    latency::Latencies,
    mode,
    pair::cores,
    rates::{self, Measure},
};
use rma_lab::Lab;
use rma_xdp::{BufferPool, Client, Grant, Host, HostAddr, HostConfig, OpType, Permissions};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{
    conditions::{MTU, lab, sockets},
    spec::Measured,
};
use crate::service::Service;

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Exchanges of each kind in a round.
const COUNT: u64 = 5_000;
/// Bytes of a message.
const LEN: usize = 64;

/// Both kinds, and all that was recorded.
struct Both {
    client: Client,
    pool: BufferPool,
    grant: Grant,
    service: Service,
    reads: Latencies,
    messages: Latencies,
    // Last, as they have what is above.
    _hosts: [Host; 2],
}

impl Both {
    fn open(lab: &Lab) -> Result<Self, PairError> {
        let open = |address: HostAddr| {
            let config: HostConfig = mode::host(Lab::INTERFACE);
            Host::open(config.with(|it| it.addresses = vec![address]))
        };
        let server = {
            let _inside = lab.b().enter()?;
            open(Lab::B_V4.into())?
        };
        let _inside = lab.a().enter()?;
        let host = open(Lab::A_V4.into())?;
        let region = server.register(LEN, Permissions::READ)?;
        let grant = server.grant(&region, Lab::A_V4.into(), host.pid(), OpType::Read)?;
        Ok(Self {
            client: Client::new(host.transfers(16)?),
            pool: host.buffer_pool(1, LEN as u32)?,
            grant,
            service: Service::open::<LEN>(&sockets()?)?,
            reads: Latencies::new(),
            messages: Latencies::new(),
            _hosts: [host, server],
        })
    }

    fn read(&mut self) -> Result<f64, PairError> {
        let mut latencies = Latencies::new();
        for _ in 0..COUNT {
            let began = clock();
            let read = async { self.client.read(&self.grant, 0, self.pool.acquire().await).await };
            let (result, _buf) = self.client.block_on(read)?;
            result.map_err(|error| PairError::SpoiledRound(error.to_string()))?;
            latencies.record(clock() - began);
        }
        self.reads.merge(&latencies);
        Ok(latencies.quantile_us(0.5))
    }

    fn message(&mut self) -> Result<f64, PairError> {
        let latencies = self.service.ping_pong::<LEN>(COUNT)?;
        self.messages.merge(&latencies);
        Ok(latencies.quantile_us(0.5))
    }
}

pub(super) fn first_read(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    // On a thread of its own, whose cores are those of all threads that it starts.
    let measured = thread::scope(|scope| scope.spawn(|| on_two_cores(interrupt)).join());
    measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn on_two_cores(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    if let (Some(first), Some(second)) = cores() {
        let mut two = CpuSet::new();
        two.set(first);
        two.set(second);
        sched_setaffinity(None, &two).map_err(|error| PairError::Sockets(error.into()))?;
    }
    let lab = lab()?;
    let mut both = Both::open(&lab)?;
    let mut read = Both::read;
    let mut message = Both::message;
    let measures: [&mut Measure<'_, Both>; 2] = [&mut read, &mut message];
    let [reads, messages] = rates::in_turns(&mut both, measures, ROUNDS, interrupt)?;
    let ratios = reads.over_each(&messages);
    let (low, high) = ratios.range();
    let detail = format!(
        "{LEN} B READs of one thread by `block_on`, hosts and engines as they are by default, over AF_XDP, p50 {:.1} us and \
         p99 {:.1} us; {LEN} B there and back over TCP, in plaintext, each side a tokio runtime of one thread, {:.1} us and \
         {:.1} us; all threads on two cores, none pinned; medians of {} rounds in turns, ratios from {low:.2} to {high:.2}; \
         veth MTU {MTU}, XDP mode {}",
        both.reads.quantile_us(0.5),
        both.reads.quantile_us(0.99),
        both.messages.quantile_us(0.5),
        both.messages.quantile_us(0.99),
        ratios.rounds(),
        mode::asked_for().name(),
    );
    Ok(vec![Measured::new(ratios.median(), detail)])
}
