//! A cache on loopback, without privileges: servers that are processes of this machine, with
//! certificates and a policy of their own, and which may be killed.
//!
//! Invariant: when it is dropped, its servers are gone and reaped.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicU16, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use rma_xdp::{Host, HostConfig, HostError};

use crate::{
    certificates,
    client::{Cache, OpenError, ServerAt},
    load::run::UNDER_WAY_MAX,
    server,
};

/// How many servers there are.
pub const SERVERS: usize = 3;

/// How many of them hold each key.
pub const COPIES: usize = 2;

/// The UDP port of 1RMA, and the TCP ports of keys and puts, on addresses that no other process
/// uses: those of this process's next demo.
fn ports() -> [u16; 3] {
    static NEXT: AtomicU16 = AtomicU16::new(10_600);
    let first = NEXT.fetch_add(3, Relaxed);
    [first, first + 1, first + 2]
}

const SERVER: &str = "spiffe://example.org/kv/server";
const CLIENT: &str = "spiffe://example.org/kv/client";

/// All is on loopback, where connections come from another address than frames.
const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client"
ops = ["read"]
initiators = ["127.0.0.0/8"]

[[allow]]
region = "kv/puts"
identity = "spiffe://example.org/kv/client"
ops = ["write"]
initiators = ["127.0.0.0/8"]
"#;

/// The program of a server: its path, and what comes before a server's arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The path of the program.
    pub path: PathBuf,
    /// The first arguments.
    pub args: Vec<String>,
}

/// Servers on loopback, and a host for a client.
#[derive(Debug)]
pub struct Demo {
    program: Program,
    directory: PathBuf,
    credentials: Vec<PathBuf>,
    rotate: f64,
    servers: Vec<ServerAt>,
    port: u16,
    children: Vec<Option<Child>>,
    /// The lines of servers, with their numbers; nothing is their end.
    says: Sender<(usize, String)>,
    said: Receiver<(usize, String)>,
    host: Host,
}

/// The reason why there is no demo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file cannot be written, or a process not be started.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The client's host cannot be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There is no client.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A server has ended.
    #[error("server {name} has ended before it was ready; what it says is above")]
    Ended {
        /// The name of the server.
        name: String,
    },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> DemoError {
    move |source| DemoError::System { what, source }
}

impl Demo {
    /// Starts the servers, each of which changes its keys every `rotate` seconds, with all files in
    /// an empty `directory`, and waits until they are ready.
    ///
    /// # Errors
    /// The error names what is missing or wrong.
    pub fn start(program: Program, directory: &Path, rotate: f64) -> Result<Self, DemoError> {
        let issued = certificates::issue(directory, &[SERVER, CLIENT]);
        let credentials = issued.map_err(failed("issuing certificates"))?;
        let policy = directory.join("policy.toml");
        fs::write(policy, POLICY).map_err(failed("writing the policy"))?;
        let [port, keys, puts] = ports();
        let servers = ["a", "b", "c"].into_iter().enumerate().map(|(i, name)| ServerAt {
            name: name.into(),
            keys: SocketAddr::from((address(i), keys)),
            puts: SocketAddr::from((address(i), puts)),
            identity: SERVER.parse().expect("an identity"),
        });
        let host = server::host(HostConfig::udp(address(SERVERS)), port)?;
        let (says, said) = channel();
        let mut demo = Self {
            program,
            directory: directory.to_owned(),
            credentials,
            rotate,
            servers: servers.collect(),
            port,
            children: Vec::new(),
            says,
            said,
            host,
        };
        demo.children.resize_with(SERVERS, || None);
        for server in 0..SERVERS {
            demo.start_server(server)?;
        }
        let mut waits = SERVERS;
        while waits > 0 {
            let (server, line) = demo.said.recv().expect("there is a sender here");
            match line.as_str() {
                "ready" => waits -= 1,
                "" => return Err(DemoError::Ended { name: demo.servers[server].name.clone() }),
                _ => {}
            }
        }
        Ok(demo)
    }

    /// Returns the servers' addresses, by name.
    #[must_use]
    pub fn servers(&self) -> &[ServerAt] {
        &self.servers
    }

    /// The directory of the client's credentials.
    #[must_use]
    pub fn credentials(&self) -> &Path {
        &self.credentials[1]
    }

    /// The client's host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// A client at that host.
    ///
    /// # Errors
    /// The error names what is missing or wrong.
    pub fn client(&self) -> Result<Cache, DemoError> {
        let limits = (COPIES, UNDER_WAY_MAX as u32);
        Ok(Cache::open(&self.host, self.credentials(), &self.servers, limits)?)
    }

    /// Starts a server that is not there. [`Demo::events`] say when it is ready.
    ///
    /// # Errors
    /// If there can be no process.
    pub fn start_server(&mut self, server: usize) -> Result<(), DemoError> {
        let mut command = Command::new(&self.program.path);
        let ServerAt { keys, puts, .. } = &self.servers[server];
        command.args(&self.program.args);
        command.args(["--udp", &address(server).to_string(), "--port", &self.port.to_string()]);
        command.args(["--keys", &keys.to_string(), "--puts", &puts.to_string()]);
        command.arg("--credentials").arg(&self.credentials[0]);
        command.arg("--policy").arg(self.directory.join("policy.toml"));
        command.args(["--rotate", &self.rotate.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed("starting a server"))?;
        let out = child.stdout.take().expect("it is piped");
        let says = self.says.clone();
        self.children[server] = Some(child);
        let listen = move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                _ = says.send((server, line));
            }
            // The end, which is no line.
            _ = says.send((server, String::new()));
        };
        let thread = thread::Builder::new().name("kv-demo".into()).spawn(listen);
        thread.map_err(failed("listening to a server")).map(drop)
    }

    /// Kills a server, without a warning.
    ///
    /// # Errors
    /// If the system does not.
    pub fn kill(&mut self, server: usize) -> Result<(), DemoError> {
        let Some(mut child) = self.children[server].take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map_err(failed("killing a server")).map(drop)
    }

    /// Returns the news of servers since the last call: which, and what happened.
    pub fn events(&self) -> Vec<(usize, &'static str)> {
        let what = |line: &str| match line {
            "ready" => "back",
            "rotated" => "rotated",
            _ => "gone",
        };
        self.said.try_iter().map(|(server, line)| (server, what(&line))).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// An address for each server, and one more, which are this process's: its number is in them.
fn address(of: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x7f00_0000 | (std::process::id() << 2 | of as u32) & 0xff_ffff)
}
