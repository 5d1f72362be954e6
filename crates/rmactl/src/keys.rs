//! A policy's decision, and one fetch from a service by hand.
//!
//! Of keys it says that they came, for which epoch and for how long; never what they are.

use core::{fmt::Write, time::Duration};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    op::OpType,
};
use rma_keys::{
    identity::{IdentityError, SpiffeId},
    io::{
        addresses::Addresses,
        client::{Client, ClientLoop, FetchError},
        clock,
        server::StartError,
    },
    message::{
        reply::{Answer, Granted, Refusal, Reply},
        request::{Request, Wanted},
    },
    name::{NameError, RegionName},
    ops::OpSet,
    peer::{Peer, Serial},
    policy::{Ask, Policy, PolicyError},
};

use crate::files::{self, FileError};

/// The region, and the action on it.
#[derive(Args, Debug)]
pub(crate) struct What {
    /// Name of the region, for example kv/index
    #[arg(long)]
    region: String,
    /// Type of op: read, write, rekey, send, write_with_imm, notify, compare_swap or fetch_add.
    /// Repeat the option to ask for several together
    #[arg(long = "op", default_value = "read")]
    ops: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explains a policy's decision: the rule that decides, and why each of the others does not
    Explain {
        /// Policy file in TOML
        #[arg(long)]
        policy: PathBuf,
        /// SPIFFE ID of the client, for example spiffe://example.org/kv/client/7
        #[arg(long)]
        id: String,
        /// Address that the client connects from, as the service sees it; if the client has
        /// several, see the service's audit log
        #[arg(long)]
        address: HostAddr,
        /// Address that the keys would be bound to. Default: the one given by --address
        #[arg(long)]
        initiator: Option<HostAddr>,
        /// Serial number of the client's certificate
        #[arg(long, default_value = "00")]
        serial: Serial,
        #[command(flatten)]
        what: What,
    },
    /// Fetches keys of a region, and describes the reply without its keys
    Fetch {
        /// Address or name of the service, and its port
        #[arg(long, value_name = "ADDRESS:PORT")]
        service: Addresses,
        /// SPIFFE ID that the service must have
        #[arg(long)]
        expect: String,
        /// Directory with the client's credentials, as `rmactl ca issue` makes it
        #[arg(long)]
        dir: PathBuf,
        /// Address of the host that the keys are for
        #[arg(long)]
        initiator: HostAddr,
        /// Number of the process that the keys are for
        #[arg(long)]
        pid: u32,
        /// Seconds to wait for the reply
        #[arg(long, default_value_t = 5)]
        wait: u32,
        #[command(flatten)]
        what: What,
    },
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KeysError {
    /// The policy cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is no policy.
    #[error("{}: {why}", path.display())]
    Policy {
        /// The policy.
        path: PathBuf,
        /// The fault.
        why: PolicyError,
    },
    /// The identity is none.
    #[error("{id:?} is no identity: {why}")]
    Identity {
        /// The identity.
        id: String,
        /// The fault.
        why: IdentityError,
    },
    /// The region's name is none.
    #[error("{name:?} is no name of a region: {why}")]
    Name {
        /// The name.
        name: String,
        /// The fault.
        why: NameError,
    },
    /// There is no such type of op.
    #[error("{op:?} is no type of op; `rmactl keys explain --help` lists them")]
    Op {
        /// The given text.
        op: String,
    },
    /// One's own credentials are not in order.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The service did not answer.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// There is no thread.
    #[error("no thread to fetch with: {0}")]
    Thread(std::io::Error),
    /// The service gives nothing.
    #[error("{expected} refuses: {why}")]
    Refused {
        /// The service.
        expected: SpiffeId,
        /// The service's reason.
        why: String,
    },
}

pub(crate) fn run(command: &Command) -> Result<String, KeysError> {
    match command {
        Command::Explain { policy: path, id, address, initiator, serial, what } => {
            let policy = Policy::parse(&files::read(path)?)
                .map_err(|why| KeysError::Policy { path: path.clone(), why })?;
            let now = clock::now().wall;
            let (identity, (region, ops)) = (identity(id)?, what.parse()?);
            let serial = serial.clone();
            let peer = Peer { identity, serial, not_after: now, address: *address };
            let initiator = initiator.unwrap_or(*address);
            let ask = Ask { peer: &peer, region: &region, ops, initiator: Some(initiator) };
            let said = policy.explain(&ask, now).to_string();
            // Else a client that reaches the service by another network is denied what this allows.
            Ok(format!("{said}asked for keys of {initiator}, over a connection from {address}\n"))
        }
        Command::Fetch { service, expect, dir, initiator, pid, wait, what } => {
            let (expected, (name, ops)) = (identity(expect)?, what.parse()?);
            let client =
                Client::start(ClientLoop::from_directory(dir)?).map_err(KeysError::Thread)?;
            let source = client.fetcher().source(service.clone().into_vec(), expected.clone());
            let regions = vec![Wanted { name, ops, have: None }];
            let initiators = LocalAddresses::from(*initiator);
            let request = Request { initiators, pid: Pid(*pid), regions };
            let patience = Duration::from_secs((*wait).into());
            let reply = client.fetcher().fetch(source, &request, patience).wait()?;
            let from = client.fetcher().connected_from(source).unwrap_or(*initiator);
            said(&reply, *initiator, from).map_err(|why| KeysError::Refused { expected, why })
        }
    }
}

impl What {
    fn parse(&self) -> Result<(RegionName, OpSet), KeysError> {
        let wrong = |why| KeysError::Name { name: self.region.clone(), why };
        let name = self.region.parse().map_err(wrong)?;
        let find = |op: &String| {
            let is_it = |it: &OpType| it.shape().name.eq_ignore_ascii_case(op);
            OpType::ALL.into_iter().find(is_it).ok_or_else(|| KeysError::Op { op: op.clone() })
        };
        Ok((name, self.ops.iter().map(find).collect::<Result<_, _>>()?))
    }
}

fn identity(id: &str) -> Result<SpiffeId, KeysError> {
    id.parse().map_err(|why| KeysError::Identity { id: id.to_owned(), why })
}

/// Describes a reply, without its keys.
fn said(reply: &Reply, initiator: HostAddr, from: HostAddr) -> Result<String, String> {
    let answers = match reply {
        Reply::Answers(answers) => answers,
        Reply::Refused(Refusal::NotNow { retry }) => {
            return Err(format!("not now; ask again in {} ms", retry.as_millis()));
        }
        Reply::Refused(Refusal::CertificateEnded { seen }) => {
            return Err(format!(
                "the client's certificate has ended: it is {seen} there; renew it"
            ));
        }
        Reply::Refused(refusal) => return Err(format!("{refusal:?}")),
    };
    let mut text = String::new();
    for answer in answers {
        match answer {
            Answer::Granted(granted) => text.push_str(&shown(granted)),
            Answer::Current { .. } => text.push_str("the keys are the latest\n"),
            Answer::Denied => {
                return Err(format!(
                    "denied: no such region, or not for this client, or not for {initiator} over a connection from {from}; `rmactl keys explain --initiator {initiator} --address {from}` says which rule decides, where the policy is"
                ));
            }
            Answer::NoAddressOfFamily => {
                return Err(format!(
                    "the region's host has no address of the family of {initiator}; give --initiator an address of the other family"
                ));
            }
        }
    }
    Ok(text)
}

fn shown(granted: &Granted) -> String {
    let Granted { responder, region, region_len, present, next, refresh } = granted;
    let mut text = format!("{region:?} of {region_len} bytes at {responder}\n");
    for (which, keys) in
        [Some(("present", present)), next.as_ref().map(|it| ("next", it))].into_iter().flatten()
    {
        let ops: OpSet = keys.keys.iter().map(|(op_type, _)| *op_type).collect();
        let lifetime = keys.lifetime.as_secs();
        // A text takes whatever is written to it.
        _ = writeln!(text, "{which:8} epoch {}: keys for {ops}, {lifetime} s", keys.epoch);
    }
    _ = writeln!(text, "ask again in {} s", refresh.as_secs());
    text
}
