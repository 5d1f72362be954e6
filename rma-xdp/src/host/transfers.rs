//! The hosts' part in transfers of any size: [`Transfers`].

use core::{pin::pin, time::Duration};

use rma_app::{BufferPool, Client, Transfers, WaitError};
use rma_core::{executor::ExecutorConfig, region::Permissions};

#[cfg(doc)]
use super::Host;
use super::{HostOf, InlineHost};
use crate::{device::DeviceInfo, engine::EngineKind, error::HostError};

/// The round trip that congestion control starts from over kernel UDP sockets: system calls and
/// wake-ups of two engines. Shorter: windows shrink while nothing waits but for the scheduler.
/// Longer: queues grow before they do.
const UDP_RTT: Duration = Duration::from_micros(200);

impl<P: EngineKind> HostOf<P> {
    /// Transfers over a new portal of `slots` command slots, by an executor with
    /// [`Host::executor_config`]. Those of an inline host go on in [`InlineHost::drive`] and
    /// [`InlineHost::wait`].
    ///
    /// # Errors
    /// If that many slots are not free.
    pub fn transfers(&self, slots: u16) -> Result<Transfers, HostError> {
        Ok(Transfers::new(self.portal(slots)?, self.executor_config())?)
    }

    /// The settings of an executor that suit this host: large calls cut for the frames of its
    /// device, and over AF_XDP for frames that one chunk of its memory holds, as longer ones gain
    /// nothing; congestion control for the round-trip time of its NIC, and over UDP for one of 200
    /// µs at least and for windows of at least one op. [`Transfers::new`] takes them, changed as
    /// you like.
    pub fn executor_config(&self) -> ExecutorConfig {
        let config = |receive, rtt| ExecutorConfig::new(receive, self.nic.timing.timeout, rtt);
        match &self.info {
            #[cfg(feature = "xdp")]
            DeviceInfo::Xdp(_) => {
                use crate::device::xdp::SINGLE_BUFFER_MTU;
                use rma_core::nic::ReceiveLenMax;
                // Large transfers are cut for frames that stay in one chunk.
                let one_chunk = ReceiveLenMax::of_mtu(SINGLE_BUFFER_MTU as usize);
                let ReceiveLenMax { ipv4, ipv6 } = self.receive_len_max;
                let (ipv4, ipv6) = (ipv4.min(one_chunk.ipv4), ipv6.min(one_chunk.ipv6));
                config(ReceiveLenMax { ipv4, ipv6 }, self.nic.rtt)
            }
            DeviceInfo::Udp(_) => {
                let config = config(self.receive_len_max, self.nic.rtt.max(UDP_RTT));
                // On a busy machine delays say how long a thread did not run, which fewer ops do
                // not shorten.
                let cc = config.cc.with(|it| it.cwnd_min = 1.0);
                config.with(|it| it.cc = cc)
            }
        }
    }

    /// Registers memory for `count` buffers of `len` bytes, which remote hosts may not touch.
    ///
    /// # Errors
    /// If that much cannot be had: see [`Host::register`] and [`BufferPool::new`].
    pub fn buffer_pool(&self, count: u32, len: u32) -> Result<BufferPool, HostError> {
        let region = self.register(BufferPool::region_len(count, len)?, Permissions::NONE)?;
        Ok(BufferPool::new(region, len)?)
    }
}

impl InlineHost {
    /// One turn of the engine between two looks of `executor`: what it has to issue is taken at
    /// once, and completions of that turn are seen at once. Returns how much there was to do.
    pub fn drive(&mut self, executor: &mut Transfers) -> usize {
        executor.poll() + self.turn() + executor.poll()
    }

    /// Runs a future to its end, turning the engine and polling `client`, over one of this host's
    /// executors, between its wake-ups. The future may also wait for what other threads do.
    ///
    /// # Errors
    /// If the client is another host's.
    pub fn block_on<F: Future>(
        &mut self,
        client: &Client,
        future: F,
    ) -> Result<F::Output, WaitError> {
        self.wait(&mut client.driving(pin!(future)))
    }
}
