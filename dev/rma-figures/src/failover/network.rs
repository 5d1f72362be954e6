//! Three namespaces on one bridge, which is in a fourth: a client and two servers, whose processes
//! end with it.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rma_bench::{error::PairError, grant_file::GrantFile, grants::Grants, mode};
use rma_lab::{Lab, Netns};
use rma_xdp::{HostAddr, HostConfig, InlineHost, Pid};

/// The client's PID, as grants have it.
const PID: Pid = Pid(1);

/// Bytes of a server's region.
pub(super) const REGION_LEN: u64 = 1 << 20;

pub(super) struct Network {
    udp: bool,
    client: Netns,
    servers: [Netns; 2],
    /// The folder in which grants are handed over.
    folder: PathBuf,
    /// The bridge that joins the hosts: dropped last, when no interface is in it any longer.
    _bridge: Netns,
}

fn address(number: usize) -> HostAddr {
    [192, 0, 2, number as u8 + 1].into()
}

impl Network {
    pub(super) fn new(udp: bool) -> Result<Self, PairError> {
        Lab::sweep()?;
        let bridge = Netns::create("bridge")?;
        bridge.ip(&["link", "add", "br0", "type", "bridge", "stp_state", "0"])?;
        bridge.ip(&["link", "set", "dev", "br0", "up"])?;
        let host = |tag, number: usize| {
            let netns = Netns::create(tag)?;
            let (port, name) = (format!("port{number}"), Lab::INTERFACE);
            bridge.ip(&[
                "link",
                "add",
                &port,
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                netns.name(),
            ])?;
            bridge.ip(&["link", "set", "dev", &port, "master", "br0", "up"])?;
            netns.ip(&["addr", "add", &format!("{}/24", address(number)), "dev", name])?;
            netns.ip(&["link", "set", "dev", name, "up"])?;
            netns.wait_ready(name)?;
            Ok::<_, PairError>(netns)
        };
        let client = host("client", 0)?;
        let servers = [host("first", 1)?, host("second", 2)?];
        let folder = std::env::temp_dir().join(client.name());
        fs::create_dir(&folder)?;
        Ok(Self { udp, client, servers, folder, _bridge: bridge })
    }

    /// The client's host, whose thread this is from now on.
    pub(super) fn client(&self) -> Result<InlineHost, PairError> {
        let _inside = self.client.enter()?;
        let config = match self.udp {
            true => HostConfig::udp(address(0)),
            false => mode::host(Lab::INTERFACE),
        };
        Ok(InlineHost::open(config.with(|it| it.pid = PID))?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A folder for temporary files is cleaned by others as well.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A server's process.
pub(super) struct Server {
    process: Child,
    grant: PathBuf,
}

impl Server {
    pub(super) fn start(network: &Network, number: usize) -> Result<Self, PairError> {
        let grant = network.folder.join(format!("server{number}.json"));
        // That of its last life says nothing.
        let _ = fs::remove_file(&grant);
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "--xdp-mode",
            mode::asked_for().name(),
            "replica",
            "--pid",
            &PID.0.to_string(),
        ]);
        command.args(["--initiator", &address(0).to_string()]).arg("--grant").arg(&grant);
        if network.udp {
            command.args(["--udp", &address(number + 1).to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // A process is in the namespace of the thread that starts it.
        let inside = network.servers[number].enter()?;
        let process = command.spawn()?;
        drop(inside);
        Ok(Self { process, grant })
    }

    /// Returns its grants, once it serves.
    pub(super) fn grants(&self) -> Option<Grants> {
        GrantFile::load(&self.grant).ok().map(|file| file.grants)
    }

    /// Kills it as nobody can object to. Does not wait until it is gone: whose tasks are waiting
    /// for it has no thread to spare for that, and its client would pause as well.
    pub(super) fn kill(&mut self) -> Result<(), PairError> {
        self.process.kill()?;
        Ok(())
    }

    /// Waits until it is gone, after [`Server::kill`].
    pub(super) fn reap(&mut self) -> Result<(), PairError> {
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.kill().and_then(|()| self.reap());
        }
    }
}
