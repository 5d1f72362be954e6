//! What a policy decides, and one fetch from a service by hand.
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

/// Which region, and what is to be done with it.
#[derive(Args, Debug)]
pub(crate) struct What {
    /// The region's name, for example kv/index
    #[arg(long)]
    region: String,
    /// A type of op: read, write, rekey, send, write_with_imm, notify, compare_swap, fetch_add.
    /// Several are asked for together
    #[arg(long = "op", default_value = "read")]
    ops: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Says what a policy decides, by which rule, and what the others say
    Explain {
        /// The policy, in TOML
        #[arg(long)]
        policy: PathBuf,
        /// Who asks, for example spiffe://example.org/kv/client/7
        #[arg(long)]
        id: String,
        /// The address that it connects from, as the service sees it: where it has several
        /// networks, the audit log says which it is
        #[arg(long)]
        address: HostAddr,
        /// The address that the keys would be bound to; the connection's own if it is not given
        #[arg(long)]
        initiator: Option<HostAddr>,
        /// The serial number of its certificate
        #[arg(long, default_value = "00")]
        serial: Serial,
        #[command(flatten)]
        what: What,
    },
    /// Fetches keys of a region, and says what came
    Fetch {
        /// The service's address or name, and its port
        #[arg(long, value_name = "ADDRESS:PORT")]
        service: Addresses,
        /// The identity that is expected there
        #[arg(long)]
        expect: String,
        /// The directory of one's own credentials, of `rmactl ca issue` for example
        #[arg(long)]
        dir: PathBuf,
        /// The address of the host that the keys are for
        #[arg(long)]
        initiator: HostAddr,
        /// The process that the keys are for
        #[arg(long)]
        pid: u32,
        /// How long to wait, in seconds
        #[arg(long, default_value_t = 5)]
        wait: u32,
        #[command(flatten)]
        what: What,
    },
}

/// Why there is no answer.
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
        /// What is wrong with it.
        why: PolicyError,
    },
    /// The identity is none.
    #[error("{id:?} is no identity: {why}")]
    Identity {
        /// The identity.
        id: String,
        /// What is wrong with it.
        why: IdentityError,
    },
    /// The region's name is none.
    #[error("{name:?} is no name of a region: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// There is no such type of op.
    #[error("{op:?} is no type of op; `rmactl keys explain --help` lists them")]
    Op {
        /// What was given.
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
        /// What it says.
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

/// What a reply says, without its keys.
fn said(reply: &Reply, initiator: HostAddr, from: HostAddr) -> Result<String, String> {
    let answers = match reply {
        Reply::Answers(answers) => answers,
        Reply::Refused(Refusal::NotNow { retry }) => {
            return Err(format!("not now; ask again in {} ms", retry.as_millis()));
        }
        Reply::Refused(Refusal::CertificateEnded { seen }) => {
            return Err(format!("this certificate has ended; it is {seen} there"));
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
                return Err("the region is at an address of the other family".into());
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
