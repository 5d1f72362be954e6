//! The way to a host that serves: opening a client for what a grant file or a key service allows,
//! and what an error means between two machines.
//!
//! Not here: what a client then does ([`load`](crate::load), [`verify`](crate::verify)).

use core::time::Duration;
use std::path::{Path, PathBuf};

use clap::Args;
use rma_lab::Pattern;
use rma_xdp::{
    HostAddr, HostError, InlineHost, OpStatus, OpType, Pid,
    device::net::PathError,
    keys::RegionName,
    time::{Clock, TscClock},
};

use crate::{
    client::Client,
    conditions::Conditions,
    cores,
    error::PairError,
    grant_file::GrantFile,
    grants::Grants,
    interrupt::Interrupt,
    keys::{Agreed, ClientKeyArgs, RegionKeys, Service},
    line,
    pair::VERIFY_DEPTH,
    serve::{HostArgs, Opening, ServeError, Tuning, introduce, open, tell_ways},
    session::{Session, Usage},
};

/// The arguments of all clients: this host, and the source of its keys.
#[derive(Args, Clone, Debug)]
pub struct RemoteArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) keys: ClientKeyArgs,
    /// Grant file that `serve` wrote: a key in a file, without the key service.
    #[arg(
        long = "grant-file",
        alias = "grant",
        value_name = "FILE",
        default_value = "rma-grant.json",
        conflicts_with = "service"
    )]
    pub(crate) grant: PathBuf,
}

/// The server that a client talks to, and the source of its keys: what to look at if it does not
/// answer.
#[derive(Debug)]
pub(crate) struct Remote {
    responder: HostAddr,
    port: u16,
    permit: Permit,
    /// The way to ask what the server tells beside the frames: none where keys come from a file, or
    /// from a service that knows none, or once it was lost.
    pub(crate) session: Option<Session>,
    /// Whether there was one, and it was lost.
    is_lost: bool,
}

/// The source of a client's keys.
#[derive(Clone, Debug)]
enum Permit {
    File(PathBuf),
    Service(RegionName),
}

impl Remote {
    /// The server's address.
    pub(crate) const fn responder(&self) -> HostAddr {
        self.responder
    }

    /// The source of keys, in words.
    pub(crate) const fn permit_name(&self) -> &'static str {
        match self.permit {
            Permit::File(_) => "grant file",
            Permit::Service(_) => "key service",
        }
    }

    /// Whether a run was ended early by somebody: then there is something to tell of it. All else
    /// that ends one is an error, with what the host knows of the ways that may have to do with it.
    pub(crate) fn is_interrupted(
        &mut self,
        done: Result<(), PairError>,
        client: &Client,
        quiet: bool,
    ) -> Result<bool, ServeError> {
        match done {
            Ok(()) => Ok(false),
            Err(PairError::Interrupted) => Ok(true),
            Err(error) => {
                if !quiet {
                    tell_ways(&client.host);
                }
                Err(self.explain(error))
            }
        }
    }

    /// Asks what the server has used and seen. A session that is lost is told of, and not asked any
    /// more.
    pub(crate) fn usage(&mut self) -> Option<Usage> {
        match self.session.as_mut()?.usage() {
            Ok(usage) => Some(usage),
            Err(why) => {
                eprintln!("rma-bench: {why}");
                (self.session, self.is_lost) = (None, true);
                None
            }
        }
    }

    /// There is another session, or none.
    pub(crate) fn renew(&mut self, session: Option<Session>) {
        (self.is_lost, self.session) = (session.is_none(), session);
    }

    /// Explains what `error` means between two machines.
    pub(crate) fn explain(&mut self, error: PairError) -> ServeError {
        // A server that has ended, or was started again, has closed its session.
        let is_failing = matches!(error, PairError::Failing { .. } | PairError::WrongByte { .. });
        if is_failing && self.session.is_some() {
            let _ = self.usage();
        }
        let is_lost = self.is_lost;
        let (responder, port, permit) = (self.responder, self.port, self.permit.clone());
        if let (PairError::WrongByte { at }, true) = (&error, is_lost) {
            return ServeError::LaneLost { at: *at, responder };
        }
        let PairError::Failing { failures, status, .. } = error else { return error.into() };
        match (status, permit) {
            (OpStatus::Timeout | OpStatus::RemoteAuthenticationFailure, Permit::Service(_))
                if is_lost =>
            {
                ServeError::Ended { responder }
            }
            (OpStatus::Timeout, Permit::File(grant)) => {
                ServeError::Unanswered { failures, responder, port, grant }
            }
            (OpStatus::Timeout, Permit::Service(_)) => {
                ServeError::Silent { failures, responder, port }
            }
            (OpStatus::RemoteAuthenticationFailure, Permit::File(grant)) => {
                ServeError::Refused { responder, grant }
            }
            (OpStatus::RemoteAuthenticationFailure, Permit::Service(region)) => {
                ServeError::KeyChanged { responder, region }
            }
            _ => error.into(),
        }
    }
}

/// Finds the way to the server. A link that has just come up may lose its carrier once more, and
/// neighbours are not asked for meanwhile: that is waited for, for up to `patience`; for nothing
/// else.
fn resolve(host: &InlineHost, responder: HostAddr, patience: Duration) -> Result<(), HostError> {
    let clock = TscClock::new();
    loop {
        let result = host.resolve(responder);
        let passing = matches!(
            result,
            Err(HostError::Path(
                PathError::LinkDown { .. } | PathError::NeighbourUnresolved { .. }
            ))
        );
        if !passing || Duration::from_nanos(clock.now().as_nanos()) >= patience {
            return result;
        }
        // A link takes longer than this to come up.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The purpose that a client is opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The largest op.
    pub(crate) size: u32,
    /// The types of op that it wants keys for, from a service.
    pub(crate) op_types: &'a [OpType],
    /// How long it looks for a way to the server, and the server is waited for.
    pub(crate) patience: Duration,
    pub(crate) tuning: Tuning,
    /// Whether nothing is printed.
    pub(crate) quiet: bool,
}

/// Opens this host for what a grant file or a key service allows.
pub(crate) fn open_client(
    args: &RemoteArgs,
    wanted: Wanted<'_>,
    interrupt: &Interrupt,
) -> Result<(Client, Remote), ServeError> {
    let RemoteArgs { host, keys, grant } = args;
    let Wanted { size, patience, .. } = wanted;
    let open = || match keys.service()? {
        Some(service) => {
            let service = service.with_patience(patience);
            let (client, remote, _) = open_named(host, (keys, &service), wanted)?;
            Ok((client, remote))
        }
        None => {
            let file = GrantFile::load(grant)?;
            check_size(size, &file.grants)?;
            open_granted(host, (grant, file), wanted)
        }
    };
    let (mut client, mut remote) = interrupt.leaving_at_once(open)?;
    check_size(size, &client.grants)?;
    client.failures.set_patience(patience);
    client.reach(interrupt).map_err(|error| remote.explain(error))?;
    Ok((client, remote))
}

/// Says what the server is.
fn say_session(session: Option<&Session>) {
    let Some(session) = session else {
        line!(
            "  peer      tells nothing of itself: keys are served there, but not by `rma-bench serve`"
        );
        return;
    };
    let Conditions { device, kernel, .. } = &session.hello().conditions;
    // Somebody else's words: none of them moves a cursor.
    let words = format!("{device}; kernel {kernel}").replace(char::is_control, "");
    line!("  peer      {words}");
}

fn check_size(size: u32, grants: &Grants) -> Result<(), ServeError> {
    let region_len = grants.any().region_len;
    if u64::from(size) > region_len {
        return Err(ServeError::Size { size, region_len });
    }
    Ok(())
}

/// Opens a host, and fetches keys for it, for ops of these types. Otherwise as [`open_granted`].
pub(crate) fn open_named(
    host_args: &HostArgs,
    (args, service): (&ClientKeyArgs, &Service),
    Wanted { op_types, patience, tuning, quiet, .. }: Wanted<'_>,
) -> Result<(Client, Remote, RegionKeys), ServeError> {
    let session = service.session()?;
    if let Some(hello) = session.as_ref().map(Session::hello)
        && !hello.boot.is_empty()
        && hello.boot == cores::boot_id()
    {
        host_args.check_other_side(&hello.conditions.pinned)?;
    }
    let agreed = Agreed::new(args, session.as_ref(), op_types)?;
    let name = agreed.name_for(op_types)?;
    let Agreed { port, seed, .. } = agreed;
    let (pid, server) = (Pid(std::process::id()), Some(service.address()));
    let host = open(host_args, Opening { port, pid, server, tuning })?;
    let keys = service.fetch(&host, &name, op_types)?;
    host_args.pin();
    let responder = keys.grants().any().responder;
    resolve(&host, responder, patience)?;
    if !quiet {
        introduce(&host);
        say_session(session.as_ref());
    }
    let remote = Remote { responder, port, permit: Permit::Service(name), session, is_lost: false };
    let client = Client::new(host, *keys.grants(), Pattern::new(seed), VERIFY_DEPTH)?;
    Ok((client, remote, keys))
}

/// Opens a host for what is in a grant file, and says which device it has unless it is to be
/// `quiet`. Looks again for a way to the responder for as long as `patience`, where there is none.
pub(crate) fn open_granted(
    host_args: &HostArgs,
    (path, file): (&Path, GrantFile),
    Wanted { patience, tuning, quiet, .. }: Wanted<'_>,
) -> Result<(Client, Remote), ServeError> {
    let GrantFile { grants, port, seed } = file;
    let grant = grants.any();
    let opening = Opening { port, pid: grant.pid, server: None, tuning };
    let host = open(host_args, opening)?;
    host_args.pin();
    if !host.addresses().contains(grant.initiator) {
        let here: Vec<String> = host.addresses().iter().map(|addr| addr.to_string()).collect();
        return Err(ServeError::NotThisHost {
            path: path.to_owned(),
            granted: grant.initiator,
            here: here.join(" and "),
        });
    }
    resolve(&host, grant.responder, patience)?;
    if !quiet {
        introduce(&host);
    }
    let permit = Permit::File(path.to_owned());
    let remote = Remote { responder: grant.responder, port, permit, session: None, is_lost: false };
    Ok((Client::new(host, grants, Pattern::new(seed), VERIFY_DEPTH)?, remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named_with_its_port_and_the_grant_file() {
        let responder = [192, 0, 2, 9].into();
        let of = |permit| Remote { responder, port: 10_999, permit, session: None, is_lost: false };
        let mut remote = of(Permit::File("here/grant.json".into()));
        let failing = |status| PairError::Failing { failures: 50, status, hint: "" };
        let mut explain = |error| remote.explain(error).to_string();
        let text = explain(failing(OpStatus::Timeout));
        for part in ["50 ops", "TIMEOUT", "192.0.2.9", "10999", "here/grant.json", "carry"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = explain(failing(OpStatus::RemoteAuthenticationFailure));
        assert!(text.contains("192.0.2.9") && text.contains("here/grant.json"), "{text}");
        assert_eq!(explain(PairError::Interrupted), "interrupted", "all else is what it was");
        let mut remote = of(Permit::Service("kv/index".parse().unwrap()));
        let text = remote.explain(failing(OpStatus::Timeout)).to_string();
        assert!(text.contains("10999, whose key service answers"), "{text}");
        let text = remote.explain(failing(OpStatus::RemoteAuthenticationFailure)).to_string();
        assert!(text.contains("the key of kv/index") && text.contains("--rotate"), "{text}");
    }
}
