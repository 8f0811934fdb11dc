//! Finds liborlop: ORLOP_LIB_DIR, a folder that holds it, else what `pkg-config orlop` says.
//!
//! With the feature `static` the archive is linked, and what it needs: ORLOP_STATIC_LIBS (names separated
//! by spaces) replaces the list used beside ORLOP_LIB_DIR. With `cuda` the folder must hold the CUDA backend,
//! liborlop_cuda.so, which liborlop opens when an engine asks for it; nothing of CUDA is linked.
use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let watched =
        ["ORLOP_LIB_DIR", "ORLOP_INCLUDE_DIR", "ORLOP_STATIC_LIBS", "PKG_CONFIG", "PKG_CONFIG_PATH"];
    for name in watched {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let is_static = env::var_os("CARGO_FEATURE_STATIC").is_some();
    // -bundle: the archive is not copied into the .rlib, so the final link sees it before its own needs.
    let kind = if is_static { "static:-bundle" } else { "dylib" };

    let folders = if let Ok(dir) = env::var("ORLOP_LIB_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
        println!("cargo:rustc-link-lib={kind}=orlop");
        if is_static {
            println!("cargo:rerun-if-changed={dir}/liborlop.a");
            let needs =
                env::var("ORLOP_STATIC_LIBS").unwrap_or_else(|_| "pcre2-8 utf8proc sodium stdc++ m".into());
            for name in needs.split_whitespace() {
                println!("cargo:rustc-link-lib=dylib={name}");
            }
        }
        if let Ok(include) = env::var("ORLOP_INCLUDE_DIR") {
            println!("cargo:include={include}");
        }
        vec![dir]
    } else {
        pkg_config(kind, is_static)
    };

    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        let backend = "liborlop_cuda.so";
        if !folders.iter().any(|folder| Path::new(folder).join(backend).exists()) {
            let folders = folders.join(", ");
            panic!("feature cuda: {backend} is not in {folders}: build orlop with -Dcuda=enabled");
        }
    }
}

/// The folders that libraries are looked for in.
fn pkg_config(kind: &str, is_static: bool) -> Vec<String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let mut command = Command::new(&program);
    // Also the folders of the system, which it would leave out.
    command.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1").args(["--libs", "--cflags", "orlop >= 0.1"]);
    if is_static {
        command.arg("--static");
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{program}: {error}; set ORLOP_LIB_DIR to the folder of liborlop"),
    };
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("{why}\nset ORLOP_LIB_DIR to the folder of liborlop, or PKG_CONFIG_PATH to that of orlop.pc");
    }
    let mut folders = Vec::new();
    for flag in String::from_utf8_lossy(&output.stdout).split_whitespace() {
        if let Some(dir) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={dir}");
            folders.push(dir.to_string());
        } else if flag == "-lorlop" {
            println!("cargo:rustc-link-lib={kind}=orlop");
        } else if let Some(name) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={name}");
        } else if let Some(dir) = flag.strip_prefix("-I") {
            println!("cargo:include={dir}");
        }
    }
    folders
}
