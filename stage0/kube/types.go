package kube

// The fields of a Kubernetes Pod (core/v1), as far as rkt knows their names.
// What rkt can't do is of type refused: `why` says more than that, where there
// is more to say.

type document struct {
	APIVersion string   `kube:"apiVersion"`
	Kind       string   `kube:"kind"`
	Metadata   metadata `kube:"metadata"`
	Spec       spec     `kube:"spec"`
	Status     refused  `kube:"status" why:"is written by a cluster"`
}

type metadata struct {
	Name              string            `kube:"name"`
	Labels            map[string]string `kube:"labels"`
	Annotations       map[string]string `kube:"annotations"`
	Namespace         string            `kube:"namespace"`
	CreationTimestamp refused           `kube:"creationTimestamp" why:"is written by a cluster"`
	DeletionTimestamp refused           `kube:"deletionTimestamp" why:"is written by a cluster"`
	GracePeriod       refused           `kube:"deletionGracePeriodSeconds" why:"is written by a cluster"`
	Finalizers        refused           `kube:"finalizers" why:"is for a cluster"`
	GenerateName      refused           `kube:"generateName" why:"say the name"`
	Generation        refused           `kube:"generation" why:"is written by a cluster"`
	ManagedFields     refused           `kube:"managedFields" why:"is written by a cluster"`
	OwnerReferences   refused           `kube:"ownerReferences" why:"is for a cluster"`
	ResourceVersion   refused           `kube:"resourceVersion" why:"is written by a cluster"`
	SelfLink          refused           `kube:"selfLink" why:"is written by a cluster"`
	UID               refused           `kube:"uid" why:"is written by a cluster"`
}

type spec struct {
	InitContainers   []container  `kube:"initContainers"`
	Containers       []container  `kube:"containers"`
	Volumes          []volume     `kube:"volumes"`
	RestartPolicy    string       `kube:"restartPolicy"`
	GracePeriod      *int64       `kube:"terminationGracePeriodSeconds"`
	Hostname         string       `kube:"hostname"`
	HostnameOverride string       `kube:"hostnameOverride"`
	DNSPolicy        string       `kube:"dnsPolicy"`
	DNSConfig        *dnsConfig   `kube:"dnsConfig"`
	HostAliases      []hostAlias  `kube:"hostAliases"`
	HostNetwork      bool         `kube:"hostNetwork"`
	HostPID          bool         `kube:"hostPID"`
	HostIPC          bool         `kube:"hostIPC"`
	HostUsers        *bool        `kube:"hostUsers"`
	ShareProcesses   *bool        `kube:"shareProcessNamespace"`
	SecurityContext  *podSecurity `kube:"securityContext"`
	AutomountToken   bool         `kube:"automountServiceAccountToken"`
	ServiceLinks     *bool        `kube:"enableServiceLinks"`
	HostnameAsFQDN   bool         `kube:"setHostnameAsFQDN"`
	OS               *osName      `kube:"os"`
	Ephemeral        refused      `kube:"ephemeralContainers" why:"are added to a running pod"`
	ActiveDeadline   refused      `kube:"activeDeadlineSeconds"`
	NodeSelector     refused      `kube:"nodeSelector" why:"there is one host"`
	NodeName         refused      `kube:"nodeName" why:"there is one host"`
	Affinity         refused      `kube:"affinity" why:"there is one host"`
	Tolerations      refused      `kube:"tolerations" why:"there is one host"`
	SchedulerName    refused      `kube:"schedulerName" why:"there is one host"`
	SchedulingGates  refused      `kube:"schedulingGates" why:"there is one host"`
	TopologySpread   refused      `kube:"topologySpreadConstraints" why:"there is one host"`
	Workload         refused      `kube:"workloadRef" why:"there is one host"`
	SchedulingGroup  refused      `kube:"schedulingGroup" why:"there is one host"`
	Eviction         refused      `kube:"evictionResponders" why:"there is one host"`
	ServiceAccount   refused      `kube:"serviceAccountName" why:"there is no cluster to ask"`
	OldAccount       refused      `kube:"serviceAccount" why:"there is no cluster to ask"`
	PullSecrets      refused      `kube:"imagePullSecrets" why:"rkt finds credentials in its configuration"`
	Subdomain        refused      `kube:"subdomain" why:"there is no cluster domain"`
	PriorityClass    refused      `kube:"priorityClassName"`
	Priority         refused      `kube:"priority"`
	Preemption       refused      `kube:"preemptionPolicy"`
	ReadinessGates   refused      `kube:"readinessGates" why:"there is no cluster to ask"`
	RuntimeClass     refused      `kube:"runtimeClassName"`
	Overhead         refused      `kube:"overhead"`
	ResourceClaims   refused      `kube:"resourceClaims"`
	Resources        *resources   `kube:"resources"`
}

type osName struct {
	Name string `kube:"name"`
}

type dnsConfig struct {
	Nameservers []string    `kube:"nameservers"`
	Searches    []string    `kube:"searches"`
	Options     []dnsOption `kube:"options"`
}

type dnsOption struct {
	Name  string  `kube:"name"`
	Value *string `kube:"value"`
}

type hostAlias struct {
	IP        string   `kube:"ip"`
	Hostnames []string `kube:"hostnames"`
}

type container struct {
	Name            string             `kube:"name"`
	Image           string             `kube:"image"`
	Command         []string           `kube:"command"`
	Args            []string           `kube:"args"`
	WorkingDir      string             `kube:"workingDir"`
	Env             []envVar           `kube:"env"`
	Ports           []port             `kube:"ports"`
	VolumeMounts    []volumeMount      `kube:"volumeMounts"`
	Resources       *resources         `kube:"resources"`
	SecurityContext *containerSecurity `kube:"securityContext"`
	Liveness        *probe             `kube:"livenessProbe"`
	Readiness       *probe             `kube:"readinessProbe"`
	Startup         *probe             `kube:"startupProbe"`
	Lifecycle       *lifecycleHooks    `kube:"lifecycle"`
	RestartPolicy   string             `kube:"restartPolicy"`
	RestartRules    []restartRule      `kube:"restartPolicyRules"`
	PullPolicy      string             `kube:"imagePullPolicy"`
	MessagePath     string             `kube:"terminationMessagePath"`
	MessagePolicy   string             `kube:"terminationMessagePolicy"`
	Stdin           bool               `kube:"stdin"`
	StdinOnce       bool               `kube:"stdinOnce"`
	TTY             bool               `kube:"tty"`
	EnvFrom         refused            `kube:"envFrom" why:"there are no ConfigMaps and Secrets: write env"`
	VolumeDevices   refused            `kube:"volumeDevices"`
	ResizePolicy    refused            `kube:"resizePolicy"`
}

type envVar struct {
	Name      string  `kube:"name"`
	Value     string  `kube:"value"`
	ValueFrom refused `kube:"valueFrom" why:"there is no cluster to ask: write value"`
}

type port struct {
	Name          string `kube:"name"`
	ContainerPort int64  `kube:"containerPort"`
	HostPort      int64  `kube:"hostPort"`
	HostIP        string `kube:"hostIP"`
	Protocol      string `kube:"protocol"`
}

type volumeMount struct {
	Name              string  `kube:"name"`
	MountPath         string  `kube:"mountPath"`
	ReadOnly          bool    `kube:"readOnly"`
	RecursiveReadOnly string  `kube:"recursiveReadOnly"`
	SubPath           string  `kube:"subPath"`
	Propagation       string  `kube:"mountPropagation"`
	SubPathExpr       refused `kube:"subPathExpr"`
	BindOptions       refused `kube:"bindMountOptions"`
}

type resources struct {
	Limits   map[string]quantity `kube:"limits"`
	Requests map[string]quantity `kube:"requests"`
	Claims   refused             `kube:"claims"`
}

type restartRule struct {
	Action    string     `kube:"action"`
	ExitCodes *exitCodes `kube:"exitCodes"`
}

type exitCodes struct {
	Operator string  `kube:"operator"`
	Values   []int64 `kube:"values"`
}

type lifecycleHooks struct {
	PostStart  *hook  `kube:"postStart"`
	PreStop    *hook  `kube:"preStop"`
	StopSignal string `kube:"stopSignal"`
}

type hook struct {
	Exec      *execAction `kube:"exec"`
	HTTPGet   *httpAction `kube:"httpGet"`
	Sleep     refused     `kube:"sleep"`
	TCPSocket refused     `kube:"tcpSocket" why:"Kubernetes has given it up too"`
}

type probe struct {
	Exec             *execAction `kube:"exec"`
	HTTPGet          *httpAction `kube:"httpGet"`
	TCPSocket        *tcpAction  `kube:"tcpSocket"`
	InitialDelay     *int64      `kube:"initialDelaySeconds"`
	Period           *int64      `kube:"periodSeconds"`
	Timeout          *int64      `kube:"timeoutSeconds"`
	SuccessThreshold *int64      `kube:"successThreshold"`
	FailureThreshold *int64      `kube:"failureThreshold"`
	GRPC             refused     `kube:"grpc"`
	GracePeriod      refused     `kube:"terminationGracePeriodSeconds"`
}

type execAction struct {
	Command []string `kube:"command"`
}

type httpAction struct {
	Path    string      `kube:"path"`
	Port    intOrString `kube:"port"`
	Host    string      `kube:"host"`
	Scheme  string      `kube:"scheme"`
	Headers refused     `kube:"httpHeaders"`
}

type tcpAction struct {
	Port intOrString `kube:"port"`
	Host string      `kube:"host"`
}

type volume struct {
	Name     string       `kube:"name"`
	EmptyDir *emptyDir    `kube:"emptyDir"`
	HostPath *hostPath    `kube:"hostPath"`
	Image    *imageVolume `kube:"image"`

	// The sources that need a cluster, or a driver.
	AWS           refused `kube:"awsElasticBlockStore"`
	AzureDisk     refused `kube:"azureDisk"`
	AzureFile     refused `kube:"azureFile"`
	CephFS        refused `kube:"cephfs"`
	Cinder        refused `kube:"cinder"`
	ConfigMap     refused `kube:"configMap" why:"there are no ConfigMaps: mount a hostPath"`
	CSI           refused `kube:"csi"`
	DownwardAPI   refused `kube:"downwardAPI"`
	Ephemeral     refused `kube:"ephemeral"`
	FC            refused `kube:"fc"`
	FlexVolume    refused `kube:"flexVolume"`
	Flocker       refused `kube:"flocker"`
	GCE           refused `kube:"gcePersistentDisk"`
	GitRepo       refused `kube:"gitRepo"`
	Glusterfs     refused `kube:"glusterfs"`
	ISCSI         refused `kube:"iscsi"`
	NFS           refused `kube:"nfs" why:"mount it on the host and give a hostPath"`
	Claim         refused `kube:"persistentVolumeClaim" why:"there is no cluster to ask: mount a hostPath"`
	Photon        refused `kube:"photonPersistentDisk"`
	Portworx      refused `kube:"portworxVolume"`
	Projected     refused `kube:"projected"`
	Quobyte       refused `kube:"quobyte"`
	RBD           refused `kube:"rbd"`
	ScaleIO       refused `kube:"scaleIO"`
	Secret        refused `kube:"secret" why:"there are no Secrets: mount a hostPath"`
	StorageOS     refused `kube:"storageos"`
	VsphereVolume refused `kube:"vsphereVolume"`
}

type emptyDir struct {
	Medium    string   `kube:"medium"`
	SizeLimit quantity `kube:"sizeLimit"`
	Mode      *int64   `kube:"mode"`
}

type hostPath struct {
	Path string `kube:"path"`
	Type string `kube:"type"`
}

type imageVolume struct {
	Reference  string `kube:"reference"`
	PullPolicy string `kube:"pullPolicy"`
}

type podSecurity struct {
	RunAsUser      *int64          `kube:"runAsUser"`
	RunAsGroup     *int64          `kube:"runAsGroup"`
	RunAsNonRoot   *bool           `kube:"runAsNonRoot"`
	Groups         []int64         `kube:"supplementalGroups"`
	GroupsPolicy   string          `kube:"supplementalGroupsPolicy"`
	FSGroup        *int64          `kube:"fsGroup"`
	FSGroupPolicy  string          `kube:"fsGroupChangePolicy"`
	Seccomp        *seccompProfile `kube:"seccompProfile"`
	AppArmor       *appArmor       `kube:"appArmorProfile"`
	Sysctls        []sysctl        `kube:"sysctls"`
	SELinux        refused         `kube:"seLinuxOptions"`
	SELinuxPolicy  refused         `kube:"seLinuxChangePolicy"`
	WindowsOptions refused         `kube:"windowsOptions"`
}

type sysctl struct {
	Name  string `kube:"name"`
	Value string `kube:"value"`
}

type containerSecurity struct {
	RunAsUser      *int64          `kube:"runAsUser"`
	RunAsGroup     *int64          `kube:"runAsGroup"`
	RunAsNonRoot   *bool           `kube:"runAsNonRoot"`
	Capabilities   *capabilities   `kube:"capabilities"`
	Privileged     bool            `kube:"privileged"`
	ReadOnlyRootFS bool            `kube:"readOnlyRootFilesystem"`
	Escalation     *bool           `kube:"allowPrivilegeEscalation"`
	Seccomp        *seccompProfile `kube:"seccompProfile"`
	AppArmor       *appArmor       `kube:"appArmorProfile"`
	ProcMount      string          `kube:"procMount"`
	SELinux        refused         `kube:"seLinuxOptions"`
	WindowsOptions refused         `kube:"windowsOptions"`
}

type capabilities struct {
	Add  []string `kube:"add"`
	Drop []string `kube:"drop"`
}

type seccompProfile struct {
	Type      string  `kube:"type"`
	Localhost refused `kube:"localhostProfile"`
}

type appArmor struct {
	Type      string  `kube:"type"`
	Localhost refused `kube:"localhostProfile"`
}
