//! An engine over AF_XDP without a host around it, for measurements that look into its backend or
//! lose what it sends.

use std::sync::Arc;

use rma_bench::{error::PairError, mode};
use rma_core::{
    addr::{HostAddr, Pid},
    backend::Backend,
    crypto::{AeadProvider, RegionKeySchedule},
    engine::Engine,
    nic::{Nic, NicConfigBuilder, NicPlace, ReceiveLenMax, RegionEntry},
    one_rma::OneRma,
    port::Port,
    region::{Permissions, RegionId},
};
use rma_lab::{Lab, Netns};
use rma_xdp::{
    HostError, Region,
    crypto::random_region_key,
    device::{
        net::{Path, PathTable},
        xdp::{XdpBackend, XdpConfig},
    },
    time::TscClock,
};

/// The process that all of it belongs to, at both ends.
pub(crate) const PID: Pid = Pid(7);

/// The settings of an engine's NIC.
#[derive(Clone, Copy)]
pub(crate) struct BareNic {
    pub(crate) mtu: u32,
    pub(crate) settings: NicConfigBuilder,
    pub(crate) aead: &'static dyn AeadProvider,
}

/// An engine in the namespace `at`, with the way to `to`, whose backend `wrap` wraps.
pub(crate) fn engine<B: Backend>(
    to: (&Netns, HostAddr),
    at: (&Netns, HostAddr),
    nic: BareNic,
    wrap: impl FnOnce(XdpBackend) -> B,
) -> Result<Engine<B, TscClock>, PairError> {
    let (netns, address) = at;
    let BareNic { mtu, settings, aead } = nic;
    let path = Path {
        source_mac: netns.interface_mac(Lab::INTERFACE)?,
        next_hop_mac: to.0.interface_mac(Lab::INTERFACE)?,
        mtu,
    };
    let paths = PathTable::fixed(mtu, &[(to.1, path)]).expect("one path");
    let backend = {
        let _inside = netns.enter()?;
        let config = XdpConfig::new(Lab::INTERFACE, &[Port::ONE_RMA], &[address]);
        let config = mode::sockets(config);
        XdpBackend::open(&config, paths).map_err(HostError::from)?
    };
    let place =
        NicPlace::at(address).with(|it| it.receive_len_max = ReceiveLenMax::of_mtu(mtu as usize));
    let config = settings.build(place).expect("the settings work");
    let service = OneRma::new(Nic::with_aead(config, aead));
    Ok(Engine::new(service, wrap(backend), TscClock::new()))
}

/// Registers `len` bytes with an engine's NIC.
pub(crate) fn register<B: Backend>(
    engine: &mut Engine<B, TscClock>,
    len: u64,
    permissions: Permissions,
) -> (RegionId, Arc<Region>, RegionKeySchedule) {
    let memory = Arc::new(Region::new(len as usize).expect("a size that can be had"));
    let key = random_region_key().expect("the kernel has random octets");
    let entry = Box::new(RegionEntry::new(Arc::clone(&memory), &key, permissions, PID));
    let regions = engine.service_mut().nic_mut().regions_mut();
    (regions.register(entry).expect("there is room"), memory, RegionKeySchedule::new(&key))
}
