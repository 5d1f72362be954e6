//! Two inline hosts in one process: a server with a region that holds the pattern and a receive
//! queue, and a client that reads, writes and sends.
//!
//! Each runs on a thread of its own, pinned to a core of its own where there are two. Nothing else
//! happens on those threads, so what is measured is the engines and the device.

use core::time::Duration;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rma_lab::{Lab, Pattern};
#[cfg(feature = "star")]
use rma_xdp::star::StarConfigBuilder;
use rma_xdp::{
    Grant, HostAddr, HostConfig, InlineHost, OpType, Permissions, ReceiveQueue, RegisteredRegion,
    config::{NicConfigBuilder, Timing},
    device::DeviceInfo,
    messages::ReceiveQueueLayout,
    ops::OP_SIZE_MAX,
};

use crate::{aead, client::Client, error::PairError, grants::Grants, mode, model::Model};

/// Ops that a verifying client keeps in flight.
pub const VERIFY_DEPTH: u16 = 16;

/// Receives of the server's queue, each of the largest op: more than are under way at once, so that
/// whoever takes events between turns is never too late.
const RECEIVES: u16 = 64;

/// Types of op that the region is granted for: all but those for the queue.
const ON_REGION: [OpType; 6] = [
    OpType::Read,
    OpType::Write,
    OpType::Rekey,
    OpType::WriteWithImm,
    OpType::CompareSwap,
    OpType::FetchAdd,
];

/// The place where the two hosts run.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In the namespaces of a lab, over AF_XDP.
    Lab(&'a Lab),
    /// There as well, over kernel UDP sockets.
    LabUdp(&'a Lab),
    /// On loopback, over kernel UDP sockets.
    Loopback,
}

impl<'a> Place<'a> {
    /// Returns the lab, if the hosts have namespaces of their own.
    #[must_use]
    pub const fn lab(self) -> Option<&'a Lab> {
        match self {
            Self::Lab(lab) | Self::LabUdp(lab) => Some(lab),
            Self::Loopback => None,
        }
    }
}

/// The settings of a pair.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    /// Bytes of the served region.
    pub region_len: usize,
    /// Seed of its pattern and of the client's choices.
    pub seed: u64,
    /// The UDP port.
    pub port: u16,
    /// Whether the hosts talk over IPv6.
    pub ipv6: bool,
    /// Both NICs.
    pub nic: NicConfigBuilder,
    /// The settings of StaR, if both hosts serve it.
    #[cfg(feature = "star")]
    pub star: Option<StarConfigBuilder>,
}

/// Bytes of the served region, if nothing else is asked for: more than a cache holds.
const REGION_LEN: usize = 64 << 20;

impl PairConfig {
    /// A pair that waits for frames for longer than a busy scheduler lets a thread wait: for what
    /// breaks when an op fails.
    #[must_use]
    pub fn patient() -> Self {
        let timing = Timing::software(Duration::from_micros(10), Duration::from_secs(1));
        let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
        Self { nic, ..Self::default() }
    }
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            region_len: REGION_LEN,
            seed: 1,
            port: rma_xdp::config::DEFAULT_PORT,
            ipv6: false,
            nic: NicConfigBuilder::default(),
            #[cfg(feature = "star")]
            star: None,
        }
    }
}

/// The two hosts.
#[derive(Debug)]
pub struct Pair {
    /// The one that reads and writes.
    pub client: Client,
    /// The one that has the region.
    pub server: InlineHost,
    /// The region. It permits everything that a region can.
    pub region: RegisteredRegion,
    /// The queue that receives the client's SEND and the events of its WRITE_WITH_IMM. All receives
    /// are posted.
    pub queue: ReceiveQueue,
    /// For SEND to the queue.
    pub send: Grant,
    /// For NOTIFY to it.
    pub notify: Grant,
    /// Their UDP port.
    pub port: u16,
}

/// Cores for the client's and the server's thread; `None` on a machine with one core.
#[must_use]
pub fn cores() -> (Option<usize>, Option<usize>) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    match cores[..] {
        [first, second, ..] => (Some(first.id), Some(second.id)),
        _ => (None, None),
    }
}

/// Pins the calling thread, if there is a core to pin it to.
pub fn pin(core: Option<usize>) {
    if let Some(id) = core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
}

/// Runs `work` on a thread of its own that is pinned to `core`, so that nothing else that this
/// process does later is.
///
/// # Panics
/// As `work` does.
pub fn pinned<R: Send>(core: Option<usize>, work: impl FnOnce() -> R + Send) -> R {
    let work = || {
        pin(core);
        work()
    };
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl Pair {
    /// Opens both hosts, fills the server's region, posts its receives, and makes grants of all
    /// types for the client.
    ///
    /// # Errors
    /// If something could not be opened.
    pub fn open(place: Place<'_>, config: &PairConfig) -> Result<Self, PairError> {
        let (client, server) = match (place, config.ipv6) {
            (Place::Lab(_) | Place::LabUdp(_), false) => (Lab::A_V4.into(), Lab::B_V4.into()),
            (Place::Lab(_) | Place::LabUdp(_), true) => (Lab::A_V6.into(), Lab::B_V6.into()),
            (Place::Loopback, false) => {
                (HostAddr::from([127, 0, 0, 1]), HostAddr::from([127, 0, 0, 2]))
            }
            // ::1 is one address, and two hosts need two.
            (Place::Loopback, true) => return Err(PairError::NoIpv6OnLoopback),
        };
        let open = |address: HostAddr| {
            let device = match place {
                Place::Lab(_) => mode::host(Lab::INTERFACE),
                Place::LabUdp(_) | Place::Loopback => HostConfig::udp(address),
            };
            let &PairConfig { port, nic, .. } = config;
            let aead = aead::chosen();
            InlineHost::open(device.with(|it| {
                it.addresses = vec![address];
                it.port = port;
                it.nic = nic;
                #[cfg(feature = "star")]
                {
                    it.star = config.star;
                }
                it.aead = aead;
            }))
        };
        let server_host = {
            let _inside = place.lab().map(|lab| lab.b().enter()).transpose()?;
            open(server)?
        };
        let client_host = {
            let _inside = place.lab().map(|lab| lab.a().enter()).transpose()?;
            let client_host = open(client)?;
            client_host.resolve(server)?;
            server_host.resolve(client)?;
            client_host
        };
        let pattern = Pattern::new(config.seed);
        let layout = ReceiveQueueLayout::new(RECEIVES, OP_SIZE_MAX).expect("a power of two");
        let mut queue =
            server_host.receive_queue(layout, Permissions::SEND | Permissions::NOTIFY)?;
        queue.post_all();
        let everything =
            ON_REGION.iter().fold(Permissions::NONE, |all, it| all | it.shape().permission);
        let region = server_host.register_with_events(&queue, config.region_len, everything)?;
        pattern.fill_region(&region);
        let initiator = (client, client_host.pid());
        let grants = Grants::make(&server_host, &region, initiator, &ON_REGION)?;
        let to_queue =
            |op_type| server_host.grant(queue.region(), initiator.0, initiator.1, op_type);
        let (send, notify) = (to_queue(OpType::Send)?, to_queue(OpType::Notify)?);
        let mut client = Client::new(client_host, grants, pattern, VERIFY_DEPTH)?;
        let mut bytes = vec![0; config.region_len];
        pattern.fill(0, &mut bytes);
        client.model = Some(Model::new(bytes));
        Ok(Self { client, server: server_host, region, queue, send, notify, port: config.port })
    }

    /// Compares the whole region with what it should hold. Returns how many bytes that were.
    ///
    /// # Errors
    /// If one is wrong.
    pub fn compare(&self) -> Result<u64, PairError> {
        let Some(model) = &self.client.model else { return Ok(0) };
        match model.first_difference_in(&self.region) {
            Some(at) => Err(PairError::WrongByte { at }),
            None => Ok(model.len()),
        }
    }

    /// Runs `client` on the first core while the server's engine turns on the second.
    ///
    /// # Errors
    /// The error that `client` returns.
    ///
    /// # Panics
    /// If `client` does.
    pub fn run<T: Send>(
        &mut self,
        client: impl FnOnce(&mut Client) -> Result<T, PairError> + Send,
    ) -> Result<T, PairError> {
        self.run_beside(|_, _| (), client)
    }

    /// [`Pair::run`], with something to do for the server between any two turns of its engine.
    ///
    /// # Errors
    /// The error that `client` returns.
    ///
    /// # Panics
    /// If `client` does.
    pub fn run_beside<T: Send>(
        &mut self,
        mut between_turns: impl FnMut(&mut InlineHost, &mut ReceiveQueue) + Send,
        client: impl FnOnce(&mut Client) -> Result<T, PairError> + Send,
    ) -> Result<T, PairError> {
        let Self { client: initiator, server, queue, .. } = self;
        let (client_core, server_core) = cores();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(server_core);
                while !stop.load(Relaxed) {
                    if server.turn() == 0 && server_core.is_none() {
                        thread::yield_now();
                    }
                    between_turns(server, queue);
                }
            });
            let client = scope.spawn(|| {
                pin(client_core);
                client(initiator)
            });
            let result = client.join();
            stop.store(true, Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Describes the devices that the hosts opened; both are of one kind.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        self.client.host.info()
    }

    /// Lists the features that fell back to a slower way, at both hosts.
    #[must_use]
    pub fn fallbacks(&self) -> Vec<String> {
        let mut fallbacks = self.client.host.fallbacks();
        fallbacks.extend(self.server.fallbacks());
        fallbacks.sort_unstable();
        fallbacks.dedup();
        fallbacks
    }
}
