//! Keys from the key service, in place of a grant in a file: what `serve` publishes its region
//! with, and what those that measure there ask by name. An invitation or the operator's policy says
//! who may have them.
//!
//! A run that measures goes by the keys that it began with: one that is changed meanwhile ends it,
//! as what is measured are ops, and not how clients go on. `verify` goes on with others.

use core::time::Duration;
use std::{
    env,
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use clap::Args;
use rma_keys::{
    epoch::Epoch,
    io::{
        addresses::{Addresses, NoAddress},
        client::{FetchError, Hindrance},
        clock,
    },
    peer::Peer,
    policy::{Ask, Authorizer, Decision, Policy},
    ring::Standing,
    tls::{directory::Directory, refused::CertificateRefused, trust::Side, wall::Wall},
};
use rma_xdp::{
    HostAddr, HostOf, InlineHost, OpStatus, OpType, RegisteredRegion,
    config::DEFAULT_PORT,
    device::LocalAddresses,
    engine::EngineKind,
    keys::{
        CacheError, Credentials, CredentialsFrom, GiveUp, Holder, InlineKeyServer, KeyCache,
        KeyServerConfig, KeyServerError, KeyedGrant, KeyedRegion, NameError, NoKey, OpSet,
        RegionName, Schedule, SpiffeId, StartError,
    },
};

use crate::{
    grants::Grants,
    invite::{self, DOMAIN, Invitation, InvitationError, Typed},
    session::{NoSession, Session, SessionError},
};

/// How long a client waits for keys.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection may last, and say nothing: a session says nothing while ops are measured,
/// and a row may take hours. A client that is gone without a word has its lane for as long.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// How often it is looked meanwhile whether waiting is of use.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The name that a region has unless it is given another.
pub(crate) const REGION: &str = "bench/region";

/// The name of the receive queue beside a region of this name.
pub(crate) fn queue_name(region: &RegionName) -> Result<RegionName, KeysError> {
    let queue = format!("{region}/queue");
    queue.parse().map_err(|why| KeysError::QueueName { region: region.clone(), why })
}

/// The TCP port at which keys are served unless another is given.
pub(crate) const PORT: u16 = rma_doctor::SESSION_PORT;

/// The seed of a region's pattern unless another is given.
pub(crate) const SEED: u64 = 1;

/// The options by which `serve` gives keys.
#[derive(Args, Clone, Debug)]
pub struct ServeKeyArgs {
    /// Serve the region's keys at this address, to the clients that the policy allows; without a
    /// policy, to whoever has the code that is printed, at the first address of this host and port
    /// 7471 unless another is given.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = service_address)]
    pub(crate) keys: Option<Addresses>,
    /// Directory with this side's certificate and key, as `rmactl ca issue` makes it.
    #[arg(long, value_name = "DIR", requires_all = ["keys", "policy"])]
    pub(crate) id: Option<PathBuf>,
    /// Policy file in TOML, which says who may have keys of which regions; see docs/KEYS.md. It is
    /// reloaded when it changes.
    #[arg(long, value_name = "FILE", requires_all = ["keys", "id"])]
    policy: Option<PathBuf>,
    /// Write an audit log into this directory, which is created if it is missing.
    #[arg(long, value_name = "DIR", conflicts_with = "initiator")]
    audit: Option<PathBuf>,
    /// Name of the region. The receive queue beside it is NAME/queue.
    #[arg(long, value_name = "NAME", conflicts_with = "initiator", default_value = REGION)]
    region: RegionName,
    /// Seconds between changes of the region's key, a tenth more or less.
    #[arg(long, value_name = "SECONDS", conflicts_with = "initiator", default_value_t = 86_400)]
    rotate: u64,
}

impl ServeKeyArgs {
    /// Whether the policy of now lets a peer change the region. Whoever was invited may.
    pub(crate) fn may_write(&self, peer: &Peer) -> bool {
        let Some(path) = &self.policy else { return true };
        let text = fs::read_to_string(path).unwrap_or_default();
        // One that cannot be read while somebody edits it allows nothing for a moment.
        let Ok(policy) = Policy::parse(&text) else { return false };
        [OpType::Write, OpType::CompareSwap, OpType::FetchAdd].into_iter().any(|op_type| {
            let (ops, region) = (OpSet::NONE.with(op_type), &self.region);
            let ask = Ask { peer, region, ops, initiator: None };
            policy.decide(&ask, clock::now().wall) != Decision::Denied
        })
    }
}

/// The options by which a client gets keys.
#[derive(Args, Clone, Debug)]
pub struct ClientKeyArgs {
    /// Host that runs `serve`: fetch keys from there, instead of reading a grant file. Keys are
    /// served at TCP port 7471, unless it is given as HOST:PORT.
    #[arg(value_name = "SERVER", value_parser = service_address, group = "service")]
    pub(crate) server: Option<Addresses>,
    /// Another way to say SERVER.
    #[arg(long, value_name = "SERVER", value_parser = service_address, group = "service", hide = true)]
    pub(crate) keys: Option<Addresses>,
    /// Code that `serve` has printed, or - to read it from standard input. It may also be in the
    /// variable RMA_BENCH_INVITE. Both keep it out of the list of processes.
    #[arg(long, value_name = "CODE", requires = "service", conflicts_with_all = ["expect", "id"])]
    pub(crate) invite: Option<Typed>,
    /// SPIFFE ID that the service must have, for example spiffe://example.org/server.
    #[arg(long, value_name = "IDENTITY", requires_all = ["service", "id"])]
    pub(crate) expect: Option<SpiffeId>,
    /// Directory with this side's certificate and key, as `rmactl ca issue` makes it.
    #[arg(long, value_name = "DIR", requires_all = ["service", "expect"])]
    pub(crate) id: Option<PathBuf>,
    /// Name of the region. Default: what `serve` says.
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<RegionName>,
    /// Seed that `serve` was given. Default: what it says.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// UDP port that `serve` was given. Default: what it says.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
}

/// The settings that a client and its server have in common.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) region: RegionName,
    pub(crate) seed: u64,
    pub(crate) port: u16,
}

/// An error that kept keys from being served, or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// Keys cannot be served.
    #[error(transparent)]
    Serve(#[from] Box<KeyServerError>),
    /// The audit log has no place.
    #[error("the directory of the audit log, {}, cannot be made: {why}; make it, or name another in --audit", path.display())]
    Audit {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// Keys cannot be fetched.
    #[error(transparent)]
    Start(#[from] Box<StartError>),
    /// There is no room for the region's keys.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The key service gives no keys.
    #[error(transparent)]
    NoKey(#[from] Box<NoKey>),
    /// The session has failed, or cannot begin.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The server was given something else.
    #[error(
        "--{option} {given}, and `rma-bench serve` at {address} has {served}: leave out --{option}"
    )]
    Differs {
        /// The option.
        option: &'static str,
        /// Its value here.
        given: String,
        /// Its value there.
        served: String,
        /// The server.
        address: SocketAddr,
    },
    /// The region has another name.
    #[error("`rma-bench serve` at {address} serves no {asked} but {served}: leave out --region")]
    OtherRegion {
        /// The region that was asked for.
        asked: RegionName,
        /// The one that is served.
        served: RegionName,
        /// The server.
        address: SocketAddr,
    },
    /// There are no such ops.
    #[error(
        "{op} is not served at {address}, which has {served}: start `rma-bench serve` there with --op {wanted}"
    )]
    NotOffered {
        /// The op.
        op: &'static str,
        /// The ops that are served.
        served: String,
        /// The server.
        address: SocketAddr,
        /// The ops that would be.
        wanted: String,
    },
    /// An option is of no use where a grant file is.
    #[error(
        "--{option} is for keys of SERVER, and none is named: name the host that runs `rma-bench serve`, or leave out \
         --{option}, which a grant file has itself"
    )]
    NoServer {
        /// The option.
        option: &'static str,
    },
    /// There is no invitation.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// Nothing proves that this client may have keys.
    #[error(
        "nothing to show to SERVER: give --invite with the code that `rma-bench serve` has printed there, or --id and --expect"
    )]
    NotInvited,
    /// The code is another invitation's.
    #[error(
        "the code is not of what serves at {address}: each `rma-bench serve` makes a code of its own, which ends with it; \
         take the line that the one there has printed"
    )]
    OtherCode {
        /// The address.
        address: SocketAddr,
    },
    /// Nobody serves there.
    #[error(
        "nothing listens at {address}: start `rma-bench serve` there, and take the line that it prints"
    )]
    NobodyServes {
        /// The address.
        address: SocketAddr,
    },
    /// The key service knows no sessions.
    #[error(
        "what gives keys there is not `rma-bench serve`: it opens nothing to compare with; run `rma-bench serve` there"
    )]
    NoSession,
    /// The service is reached by invitation.
    #[error(
        "what serves at {address} has made an invitation: give --invite with the code that it has printed, in place of --id \
         and --expect"
    )]
    ByInvitation {
        /// The address.
        address: SocketAddr,
    },
    /// The service has certificates.
    #[error(
        "what serves at {address} has certificates of its operator, and no invitation: give --id and --expect in place of \
         --invite"
    )]
    ByCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// The address is link-local and names no interface.
    #[error(
        "{address} is link-local, and keys are served at addresses that need no interface beside them: give this host and \
         SERVER another address, or use a grant file (`rma-bench serve --initiator`)"
    )]
    LinkLocal {
        /// The address.
        address: SocketAddr,
    },
    /// The queue has no name.
    #[error("the queue beside {region} has no name: {why}; give a shorter one with --region")]
    QueueName {
        /// The region.
        region: RegionName,
        /// The fault of the name.
        why: NameError,
    },
    /// The invitation is for something else.
    #[error(
        "`rma-bench serve` there serves no {region}, or not for such ops, or not to the address that it sees this host come \
         from: look for its --region and --op, and for NAT on the way"
    )]
    NotServed {
        /// The region that was asked for.
        region: RegionName,
    },
}

/// A region, or a queue's, as it is published.
pub(crate) struct Published<'a> {
    pub(crate) name: RegionName,
    pub(crate) region: &'a RegisteredRegion,
    /// The ops that an invitation allows.
    pub(crate) ops: OpSet,
}

/// A key service that is known.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    addresses: Vec<SocketAddr>,
    expected: SpiffeId,
    credentials: CredentialsFrom,
    /// The region that is asked for, unless the server says.
    region: Option<RegionName>,
    is_invited: bool,
    /// How long it is waited for.
    patience: Duration,
}

/// Reads the address of a key service, whose port may be left out.
pub(crate) fn service_address(text: &str) -> Result<Addresses, NoAddress> {
    // An interface beside an address is of no use: `has_a_way` says of which addresses.
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    match text.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, PORT).to_string().parse(),
        Err(_) if text.contains(':') => text.parse(),
        Err(_) => format!("{text}:{PORT}").parse(),
    }
}

/// Refuses a link-local address that names no interface: nothing can be sent to it.
fn has_a_way(address: &SocketAddr) -> Result<(), KeysError> {
    match address {
        SocketAddr::V6(it) if it.ip().is_unicast_link_local() && it.scope_id() == 0 => {
            Err(KeysError::LinkLocal { address: *address })
        }
        _ => Ok(()),
    }
}

impl ServeKeyArgs {
    /// The name that the region is served under.
    pub(crate) const fn region(&self) -> &RegionName {
        &self.region
    }

    /// Serves the keys of what is published: by the operator's policy, or to whoever has the code
    /// of the invitation, which comes with it.
    pub(crate) fn open(
        &self,
        host: &HostOf<impl EngineKind>,
        published: &[Published<'_>],
    ) -> Result<(InlineKeyServer, Option<Invitation>), KeysError> {
        let own = || host.addresses().iter().next().expect("a host has an address");
        let listen = self.keys.as_ref().map(Addresses::first);
        let listen = listen.unwrap_or_else(|| SocketAddr::new(own().ip(), PORT));
        has_a_way(&listen)?;
        self.audit.as_deref().map_or(Ok(()), make_directory)?;
        let (config, invitation) = match (&self.id, &self.policy) {
            (Some(id), Some(policy)) => (KeyServerConfig::new(listen, id, policy), None),
            _ => {
                let invitation = Invitation::new()?;
                let credentials = invitation.credentials(Side::Server)?;
                let policy = invite::policy(published.iter().map(|it| (&it.name, it.ops)));
                (KeyServerConfig::new(listen, credentials, policy), Some(invitation))
            }
        };
        let config = config.with(|it| {
            it.audit.clone_from(&self.audit);
            (it.limits.times.idle, it.limits.times.age) = (SILENCE, SILENCE);
        });
        let mut keys = InlineKeyServer::open(host, &config).map_err(Box::new)?;
        let schedule = Schedule::every(Duration::from_secs(self.rotate));
        for Published { name, region, .. } in published {
            keys.publish(host, name, region, schedule).map_err(Box::new)?;
        }
        Ok((keys, invitation))
    }
}

/// Makes the directory of the audit log, which tells who was given keys: for its owner alone.
fn make_directory(path: &Path) -> Result<(), KeysError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|why| KeysError::Audit { path: path.to_owned(), why })
}

impl ClientKeyArgs {
    /// The service to ask, if one is given.
    pub(crate) fn service(&self) -> Result<Option<Service>, KeysError> {
        let Some(addresses) = self.server.as_ref().or(self.keys.as_ref()) else {
            let given = [self.region.is_some(), self.seed.is_some(), self.port.is_some()];
            let mut given = ["region", "seed", "port"].into_iter().zip(given);
            let option = given.find_map(|(option, is_given)| is_given.then_some(option));
            return option.map_or(Ok(None), |option| Err(KeysError::NoServer { option }));
        };
        let (addresses, region) = (addresses.clone().into_vec(), self.region.clone());
        addresses.iter().try_for_each(has_a_way)?;
        if let (Some(id), Some(expected)) = (&self.id, self.expect.clone()) {
            let credentials = id.into();
            let is_invited = false;
            let patience = PATIENCE;
            return Ok(Some(Service {
                addresses,
                expected,
                credentials,
                region,
                is_invited,
                patience,
            }));
        }
        let of_variable = |why| InvitationError::Variable(Box::new(why));
        let invitation = match (&self.invite, env::var_os(invite::VARIABLE)) {
            (Some(typed), _) => typed.read()?,
            (None, Some(code)) => code.to_string_lossy().parse().map_err(of_variable)?,
            (None, None) => return Err(KeysError::NotInvited),
        };
        let credentials = invitation.credentials(Side::Client)?.into();
        let (expected, is_invited) = (invite::identity(Side::Server), true);
        let patience = PATIENCE;
        Ok(Some(Service { addresses, expected, credentials, region, is_invited, patience }))
    }
}

impl Agreed {
    /// Takes what was given here, and else what the server says, which must not differ. Ops of
    /// these types must be served.
    pub(crate) fn new(
        args: &ClientKeyArgs,
        session: Option<&Session>,
        op_types: &[OpType],
    ) -> Result<Self, KeysError> {
        let ClientKeyArgs { region, seed, port, .. } = args;
        let Some(session) = session else {
            return Ok(Self {
                region: region.clone().unwrap_or_else(default_region),
                seed: seed.unwrap_or(SEED),
                port: port.unwrap_or(DEFAULT_PORT),
            });
        };
        let (address, hello) = (session.address(), session.hello());
        let served = hello.region.parse();
        let served: RegionName = served.ok().ok_or(SessionError::no_hello(address))?;
        if let Some(asked) = region.clone().filter(|it| *it != served) {
            return Err(KeysError::OtherRegion { asked, served, address });
        }
        let differs = |option, given: Option<u64>, served: u64| match given {
            Some(given) if given != served => {
                let (given, served) = (given.to_string(), served.to_string());
                Err(KeysError::Differs { option, given, served, address })
            }
            _ => Ok(()),
        };
        differs("seed", *seed, hello.seed)?;
        differs("port", port.map(u64::from), hello.port.into())?;
        let has = |it: &OpType| hello.ops.iter().any(|op| op == it.name());
        if let Some(missing) = op_types.iter().find(|&it| !has(it)) {
            let all = OpType::ALL.into_iter().filter(|it| has(it) || op_types.contains(it));
            let wanted: Vec<_> = all.map(|it| it.name().to_lowercase().replace('_', "-")).collect();
            let (served, wanted) = (hello.ops.join(", "), wanted.join(","));
            return Err(KeysError::NotOffered { op: missing.name(), served, address, wanted });
        }
        Ok(Self { region: served, seed: hello.seed, port: hello.port })
    }

    /// The name of what ops of these types go to: the region, or, of SEND, the queue beside it.
    pub(crate) fn name_for(&self, op_types: &[OpType]) -> Result<RegionName, KeysError> {
        if op_types.contains(&OpType::Send) {
            return queue_name(&self.region);
        }
        Ok(self.region.clone())
    }
}

impl Service {
    /// One that is waited for for so long.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Opens a session, as soon as it can be. `None` where a key service answers that knows none.
    pub(crate) fn session(&self) -> Result<Option<Session>, KeysError> {
        let credentials = match &self.credentials {
            CredentialsFrom::Memory(it) => it.clone(),
            CredentialsFrom::Directory(path) => own_credentials(path).map_err(Box::new)?,
        };
        let wall = Arc::new(Wall::new());
        let config = credentials.client(&wall, self.expected.clone());
        let began = clock::now().boot;
        for (tried, &address) in self.addresses.iter().cycle().enumerate() {
            wall.set(clock::now().wall);
            let why = match Session::open(address, Arc::clone(&config)) {
                Ok(session) => return Ok(Some(session)),
                Err(NoSession::Unknown) => return Ok(None),
                Err(NoSession::Error(why)) => return Err(why.into()),
                Err(NoSession::Hindered(why)) => why,
            };
            let why = FetchError::Unanswered { expected: self.expected.clone(), address, why };
            let waited = clock::now().boot.since(began);
            // One that swallows everything takes all of the time, and others have their turn.
            let is_over = waited >= self.patience && tried + 1 >= self.addresses.len();
            if is_over || self.is_final(&why) {
                let region = self.region.clone().unwrap_or_else(default_region);
                let (service, why) = (self.expected.clone(), Box::new(why));
                return Err(told(self.is_invited, NoKey::Late { region, service, waited, why }));
            }
            if tried == 0 {
                eprintln!("rma-bench: {why}; trying again for {:?}", self.patience);
            }
            thread::park_timeout(LOOK_EVERY);
        }
        unreachable!("a service has an address")
    }

    /// The first address at which it is asked.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Whether more time is of no use: what answers at the one address is not the one that is
    /// meant, or nobody answers there who could still be.
    fn is_final(&self, why: &FetchError) -> bool {
        let FetchError::Unanswered { why, .. } = why else { return false };
        let is_final = match why {
            Hindrance::Certificate(_) | Hindrance::Tls(_) => true,
            // An operator's service comes back with the same certificates; an invitation does not.
            _ => self.is_invited && is_refusal(why),
        };
        is_final && self.addresses.len() == 1
    }

    /// Fetches keys of what has this name for ops of these types, for `host`.
    pub(crate) fn fetch(
        &self,
        host: &InlineHost,
        name: &RegionName,
        op_types: &[OpType],
    ) -> Result<RegionKeys, KeysError> {
        let holder = Holder { initiators: host.addresses(), pid: host.pid() };
        let fetched = KeyCache::start(holder, self.credentials.clone()).map_err(Box::new)?;
        let source = fetched.source(self.addresses.clone(), self.expected.clone())?;
        let ops: OpSet = op_types.iter().copied().collect();
        let region = fetched.region(source, name.clone(), ops)?;
        let op_type = *op_types.first().expect("at least one type of op");
        let began = clock::now().boot;
        let found = loop {
            let mut found = region.wait_grant(op_type, LOOK_EVERY);
            if let Err(NoKey::Late { waited, why, .. }) = &mut found {
                *waited = clock::now().boot.since(began);
                if *waited < self.patience && !self.is_final(why) {
                    continue;
                }
            }
            break found;
        };
        let is_invited = self.is_invited;
        let KeyedGrant { grant, epoch, .. } = found.map_err(|why| told(is_invited, why))?;
        let (op_types, grants) = (op_types.into(), Grants::new(grant));
        let mut keys = RegionKeys { region, op_types, grants, epoch, is_invited };
        keys.look();
        Ok(keys)
    }
}

/// Reads the certificate and key of this side.
fn own_credentials(path: &Path) -> Result<Credentials, StartError> {
    let (_, credentials) = Directory::open(path)?;
    credentials.verify(Side::Client, clock::now().wall).map_err(|why| {
        let (path, why) = (path.join("cert.pem"), Box::new(why));
        StartError::Certificate { path, why }
    })?;
    Ok(credentials)
}

fn default_region() -> RegionName {
    REGION.parse().expect("a name")
}

/// Whether somebody was reached, who has no service there.
fn is_refusal(why: &Hindrance) -> bool {
    matches!(why, Hindrance::Connect(cause) if cause.kind() == ErrorKind::ConnectionRefused)
}

/// Says why there are no keys, in the words of an invitation where there is one.
fn told(is_invited: bool, why: NoKey) -> KeysError {
    let of_invitation = match &why {
        NoKey::GaveUp { region, why: GiveUp::Denied, addresses, .. } => {
            let is_own = |it| addresses.asked_for.contains(it);
            let is_its_own = addresses.connected_from.is_some_and(is_own);
            is_its_own.then(|| KeysError::NotServed { region: region.clone() })
        }
        NoKey::Late { why, .. } => match **why {
            FetchError::Unanswered { address, why: Hindrance::Certificate(ref why), .. } => {
                match &**why {
                    CertificateRefused::Domain { identity } if identity.domain() == DOMAIN => {
                        return KeysError::ByInvitation { address };
                    }
                    CertificateRefused::Domain { .. } => Some(KeysError::ByCertificate { address }),
                    _ => Some(KeysError::OtherCode { address }),
                }
            }
            FetchError::Unanswered { address, ref why, .. } if is_refusal(why) => {
                Some(KeysError::NobodyServes { address })
            }
            _ => None,
        },
        _ => None,
    };
    of_invitation.filter(|_| is_invited).unwrap_or_else(|| Box::new(why).into())
}

/// Keys of a region, which are renewed as long as this is there.
#[derive(Debug)]
pub(crate) struct RegionKeys {
    region: KeyedRegion,
    op_types: Box<[OpType]>,
    /// The grants that were seen last, all of one epoch.
    grants: Grants,
    epoch: Epoch,
    is_invited: bool,
}

impl RegionKeys {
    /// The grants that were seen last.
    pub(crate) const fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Returns the epoch of the keys.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// An op under the key of `epoch` has ended so.
    pub(crate) fn note(&self, epoch: Epoch, status: OpStatus) {
        let ring = self.region.ring();
        // `look` says what it may do now.
        _ = self
            .region
            .key_cache()
            .with_cache(|cache, now| cache.on_outcome(now, ring, epoch, status));
    }

    /// Takes what there is to go by now.
    pub(crate) fn look(&mut self) {
        let ring = self.region.ring();
        let seen = self.region.key_cache().with_cache(|cache, now| {
            let mut all = self.op_types.iter().map(|&it| cache.grant(now, ring, it));
            let KeyedGrant { grant, epoch, .. } = all.next()??;
            let with = |grants: Grants, it: Option<KeyedGrant>| {
                it.map(|KeyedGrant { grant, .. }| grants.with(grant.op_type, grant.key))
            };
            Some((all.try_fold(Grants::new(grant), with)?, epoch))
        });
        if let Ok(Some((grants, epoch))) = seen {
            (self.grants, self.epoch) = (grants, epoch);
        }
    }

    /// Returns the reason why there are no other keys after `waited`, as far as is known.
    pub(crate) fn hindrance(&self, waited: Duration) -> Option<KeysError> {
        let region = &self.region;
        let ring = region.ring();
        let standing = region.key_cache().with_cache(|cache, now| cache.standing(now, ring));
        let why = match standing {
            Ok(Standing::GaveUp(why)) => region.gave_up(why),
            _ => region.late(waited),
        };
        let is_hindered = |why: &FetchError| {
            !matches!(why, FetchError::Unanswered { why: Hindrance::Silent, .. })
        };
        let is_known = !matches!(&why, NoKey::Late { why, .. } if !is_hindered(why));
        is_known.then(|| told(self.is_invited, why))
    }
}

/// Returns the address at which clients ask a service that listens at `listen`: an address of every
/// machine is none of this one, and keys are given to whoever comes from the address that ops come
/// from.
pub(crate) fn asked_at(listen: SocketAddr, host: LocalAddresses) -> SocketAddr {
    let is_v4 = |it: &HostAddr| it.ip().is_ipv4();
    let mut own = host.iter().filter(|it| is_v4(it) == listen.is_ipv4()).chain(host.iter());
    match own.next() {
        // [::] is for both families.
        Some(own) if listen.ip().is_unspecified() && (listen.is_ipv6() || is_v4(&own)) => {
            SocketAddr::new(own.ip(), listen.port())
        }
        _ => listen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_of_this_host_where_it_listens_at_all_of_them() {
        let v4: LocalAddresses = HostAddr::from([192, 0, 2, 1]).into();
        let v6: LocalAddresses = "2001:db8::1".parse::<HostAddr>().unwrap().into();
        for (listen, host, says) in [
            ("192.0.2.7:7471", v4, "192.0.2.7:7471"),
            ("0.0.0.0:7471", v4, "192.0.2.1:7471"),
            ("[::]:7471", v6, "[2001:db8::1]:7471"),
            // A socket of both families.
            ("[::]:7471", v4, "192.0.2.1:7471"),
            ("0.0.0.0:7471", v6, "0.0.0.0:7471"),
        ] {
            assert_eq!(asked_at(listen.parse().unwrap(), host), says.parse().unwrap(), "{listen}");
        }
    }

    #[test]
    fn a_server_is_named_with_its_port_or_without() {
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1:7471"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("fd00::1", "[fd00::1]:7471"),
            ("[fd00::1]:80", "[fd00::1]:80"),
        ] {
            assert_eq!(service_address(text).unwrap().first(), address.parse().unwrap(), "{text}");
        }
        assert!(service_address("localhost").unwrap().first().ip().is_loopback());
    }
}
