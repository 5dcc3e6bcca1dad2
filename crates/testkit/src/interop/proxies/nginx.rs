//! nginx (Debian packages `nginx` and `libnginx-mod-stream`).

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::{ProxyEnvironment, create_directory};
use crate::interop::route::{HTTP_PORT, HTTPS_PORT, NGINX_STREAM_PORT, PROXY_HEADER_TLS_PORT, TRACKER_PORT};
use crate::process::Process;
use crate::tools::{NGINX, NGINX_STREAM};

pub(super) fn start(environment: ProxyEnvironment<'_>) -> Result<Process> {
    let directory = create_directory(environment, "nginx")?;
    let (path, certificate) = (directory.display(), environment.certificate);
    let by_http = SocketAddr::new(environment.tracker, TRACKER_PORT);
    let by_proxy_header = SocketAddr::new(environment.tracker, PROXY_HEADER_TLS_PORT);
    // A single process, so that none outlives the test. It stays root, because root of a user namespace can neither
    // become another user nor give files away.
    let settings = format!(
        "load_module {module};
        daemon off;
        master_process off;
        user root root;
        pid {path}/pid;
        lock_file {path}/lock;
        error_log stderr info;
        events {{}}
        http {{
            access_log /dev/stdout;
            client_body_temp_path {path};
            proxy_temp_path {path};
            fastcgi_temp_path {path};
            uwsgi_temp_path {path};
            scgi_temp_path {path};
            upstream by_socket {{ server unix:{socket}; keepalive 8; }}
            upstream by_tcp {{ server {by_http}; keepalive 8; }}
            map $http_upgrade $upgrade_or_nothing {{ '' ''; default upgrade; }}
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $upgrade_or_nothing;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            server {{
                listen {HTTP_PORT};
                listen [::]:{HTTP_PORT};
                location / {{ proxy_pass http://by_tcp; }}
            }}
            server {{
                listen {HTTPS_PORT} ssl;
                listen [::]:{HTTPS_PORT} ssl;
                ssl_certificate {certificate};
                ssl_certificate_key {key};
                location / {{ proxy_pass http://by_socket; }}
            }}
        }}
        stream {{
            server {{
                listen {NGINX_STREAM_PORT};
                listen [::]:{NGINX_STREAM_PORT};
                proxy_pass {by_proxy_header};
                proxy_protocol on;
            }}
        }}\n",
        module = NGINX.module(NGINX_STREAM)?.display(),
        socket = environment.socket.display(),
        certificate = certificate.certificate.display(),
        key = certificate.key.display(),
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, settings).context("cannot write the configuration of nginx")?;
    let mut nginx = environment.host.command_at(&NGINX.path()?)?;
    NGINX.set_library_path(&mut nginx)?;
    nginx.args(["-e", "stderr", "-p"]).arg(&directory).arg("-c").arg(&file);
    Process::start(nginx, &environment.directory.join("nginx.log")).context("cannot start nginx")
}
