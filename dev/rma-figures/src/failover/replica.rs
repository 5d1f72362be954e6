//! A server's process: a host whose engine sleeps when there is nothing to do, as several share two
//! cores here.

use std::{path::PathBuf, thread, time::Duration};

use clap::Args;
use rma_bench::{
    grant_file::{GrantFile, GrantFileError},
    grants::Grants,
    interrupt::Interrupt,
    mode,
};
use rma_lab::Lab;
use rma_xdp::{Host, HostAddr, HostConfig, OpType, Permissions, Pid};

use super::network::REGION_LEN;

/// Arguments of a server's process.
#[derive(Args, Clone, Debug)]
pub struct ReplicaArgs {
    /// Over kernel UDP sockets, bound to this address; otherwise over AF_XDP.
    #[arg(long)]
    pub(super) udp: Option<HostAddr>,
    /// The initiator that is granted access.
    #[arg(long)]
    pub(super) initiator: HostAddr,
    #[arg(long)]
    pub(super) pid: u32,
    /// The file through which the grant is handed over.
    #[arg(long)]
    pub(super) grant: PathBuf,
}

/// An error that keeps a replica from serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// The host could not be opened or did not do what it was asked.
    #[error(transparent)]
    Host(#[from] rma_xdp::HostError),
    /// The grant could not be handed over.
    #[error(transparent)]
    Grant(#[from] GrantFileError),
}

/// Serves until it is killed or interrupted.
///
/// # Errors
/// If something could not be set up.
pub fn replica(args: &ReplicaArgs, interrupt: &Interrupt) -> Result<(), ReplicaError> {
    let config = args.udp.map_or_else(|| mode::host(Lab::INTERFACE), HostConfig::udp);
    let port = config.port;
    let host = Host::open(config)?;
    let both = Permissions::READ | Permissions::WRITE;
    let region = host.register(REGION_LEN as usize, both)?;
    let grant = |op_type| host.grant(&region, args.initiator, Pid(args.pid), op_type);
    let write = grant(OpType::Write)?.key;
    let grants = Grants::new(grant(OpType::Read)?).with(OpType::Write, write);
    GrantFile { grants, port, seed: 0 }.save(&args.grant)?;
    while !interrupt.is_set() {
        thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}
