//! The precedence of options, variables and the platform.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Environment, HELP, HOME_VARIABLE, Paths, PathsError, SOCKET_VARIABLE, non_empty};
use crate::words;

fn environment() -> Environment {
    Environment {
        home: None,
        socket: None,
        config_folder: Some("/home/u/.config".into()),
        data_folder: Some("/home/u/.local/share".into()),
        runtime_folder: Some("/run/user/1000".into()),
    }
}

fn resolve(
    home: Option<&str>,
    config: Option<&str>,
    socket: Option<&str>,
    environment: &Environment,
) -> Result<Paths, PathsError> {
    Paths::resolve(
        home.map(Path::new),
        config.map(Path::new),
        socket.map(Path::new),
        environment,
    )
}

#[test]
fn the_platform_decides_if_nothing_is_given() {
    let paths = resolve(None, None, None, &environment()).unwrap();
    let expected = Paths {
        home: None,
        config_file: "/home/u/.config/sessiond/config.toml".into(),
        data: "/home/u/.local/share/sessiond".into(),
        runtime: "/run/user/1000/sessiond".into(),
        bridge_socket: "/run/user/1000/sessiond/sessiond.sock".into(),
        acp_socket: "/run/user/1000/sessiond/acp.sock".into(),
        log: "/home/u/.local/share/sessiond/log".into(),
    };
    assert_eq!(paths, expected);
    assert_eq!(
        paths.lock_file(),
        Path::new("/home/u/.local/share/sessiond/sessiond.lock")
    );
}

#[test]
fn without_a_runtime_folder_the_sockets_are_with_the_data() {
    let environment = Environment {
        runtime_folder: None,
        ..environment()
    };
    let paths = resolve(None, None, None, &environment).unwrap();
    assert_eq!(
        paths.bridge_socket,
        Path::new("/home/u/.local/share/sessiond/run/sessiond.sock")
    );
}

#[test]
fn one_folder_holds_everything() {
    let expected = Paths {
        home: Some("/t".into()),
        config_file: "/t/config/config.toml".into(),
        data: "/t/data".into(),
        runtime: "/t/run".into(),
        bridge_socket: "/t/run/sessiond.sock".into(),
        acp_socket: "/t/run/acp.sock".into(),
        log: "/t/log".into(),
    };
    let by_variable = Environment {
        home: Some("/t".into()),
        ..environment()
    };
    assert_eq!(resolve(Some("/t"), None, None, &environment()).unwrap(), expected);
    assert_eq!(resolve(None, None, None, &by_variable).unwrap(), expected);
    assert_eq!(
        resolve(Some("/t"), None, None, &Environment::default()).unwrap(),
        expected
    );
}

#[test]
fn the_socket_option_overrides_the_home_option_and_the_variable() {
    let variables = Environment {
        home: Some("/variable".into()),
        socket: Some("/variable.sock".into()),
        ..environment()
    };
    let table = [
        (None, None, "/variable.sock"),
        (Some("/option"), None, "/option/run/sessiond.sock"),
        (None, Some("/option.sock"), "/option.sock"),
        (Some("/option"), Some("/option.sock"), "/option.sock"),
    ];
    for (home, socket, expected) in table {
        let paths = resolve(home, None, socket, &variables).unwrap();
        assert_eq!(paths.bridge_socket, Path::new(expected), "{home:?} {socket:?}");
        let beside = match expected {
            "/option/run/sessiond.sock" => "/option/run/acp.sock".to_owned(),
            other => format!("{other}.acp"),
        };
        assert_eq!(paths.acp_socket, Path::new(&beside), "{home:?} {socket:?}");
    }
}

#[test]
fn the_configuration_can_be_in_another_folder() {
    let paths = resolve(Some("/t"), Some("/etc/s.toml"), None, &environment()).unwrap();
    assert_eq!(paths.config_file, Path::new("/etc/s.toml"));
    assert_eq!(paths.data, Path::new("/t/data"));
}

#[test]
fn a_relative_path_is_refused_by_name() {
    let relative_home = Environment {
        home: Some("t".into()),
        ..environment()
    };
    let relative_socket = Environment {
        socket: Some("t".into()),
        ..environment()
    };
    let table = [
        (resolve(Some("t"), None, None, &environment()), "--home"),
        (resolve(None, Some("t"), None, &environment()), "--config"),
        (resolve(None, None, Some("t"), &environment()), "--socket"),
        (resolve(None, None, None, &relative_home), HOME_VARIABLE),
        (resolve(None, None, None, &relative_socket), SOCKET_VARIABLE),
    ];
    for (result, source_name) in table {
        let error = result.unwrap_err();
        let path = PathBuf::from("t");
        words::check(&format!("{source_name} t"), "paths", &error.to_string());
        assert_eq!(error, PathsError::Relative { source_name, path });
    }
}

#[test]
fn a_missing_home_folder_is_an_error_with_a_hint() {
    let error = resolve(None, None, None, &Environment::default()).unwrap_err();
    words::check("no home", "paths", &error.to_string());
    assert_eq!(error, PathsError::NoHome);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    assert_eq!(non_empty(Some(OsString::new())), None);
    assert_eq!(non_empty(Some("/t".into())), Some(PathBuf::from("/t")));
}

#[test]
fn the_help_names_the_files_and_variables() {
    let platform = Environment {
        config_folder: Some("~/.config".into()),
        data_folder: Some("~/.local/share".into()),
        runtime_folder: Some("$XDG_RUNTIME_DIR".into()),
        ..Environment::default()
    };
    // The folders here are not absolute, only the paths below them matter.
    let paths = resolve(None, None, None, &platform).unwrap();
    for path in [
        &paths.config_file,
        &paths.data,
        &paths.lock_file(),
        &paths.log_file(),
        &paths.bridge_socket,
    ] {
        assert!(HELP.contains(&format!("\n  {}\n", path.display())), "{path:?}");
    }
    let home = Path::new("/one");
    let below = Paths::resolve(Some(home), None, None, &platform).unwrap();
    for path in [
        below.config_file.clone(),
        below.data.clone(),
        below.log_file(),
        below.bridge_socket,
    ] {
        let name = path.strip_prefix(home).unwrap().display().to_string();
        let mut named = HELP.split([' ', ',', '\n']);
        assert!(named.any(|word| word.trim_end_matches('.') == name), "{name}");
    }
    for variable in [HOME_VARIABLE, SOCKET_VARIABLE] {
        assert!(HELP.contains(&format!("  {variable}\n")), "{variable}");
    }
}
